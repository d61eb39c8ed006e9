"""A hub on loopback: takes what the SDKs of Hugging Face and ModelScope upload, gives it back to
``datasets``, and records every request.

It is no model of the two hubs: it speaks as much of their protocols as the SDKs ask for
(repositories, LFS uploads, commits, file listing and download).
"""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlparse

TOKEN = "hub-token-of-the-tests-1234567890"
LARGE = (".parquet", ".safetensors", ".jpg", ".png")
COMMIT = hashlib.sha1(b"commit").hexdigest()
FORBIDDEN, UNREACHABLE = "forbidden", "unreachable"
"""Repositories whose creation is refused, with the token in the answer, or not answered at all."""


@dataclass
class Repo:
    private: bool
    licence: str | None = None
    files: dict[str, bytes] = field(default_factory=dict)


class Hub(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.repos: dict[str, Repo] = {}
        self.blobs: dict[str, bytes] = {}
        self.requests: list[tuple[str, str, str]] = []  # method, path, Authorization

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"


def hub_environment(url, home):
    """What makes both SDKs speak to the hub at ``url``, with caches of their own."""
    return {
        "HOME": str(home),
        "HF_HOME": str(home / "hf"),
        "HF_ENDPOINT": url,
        "HF_HUB_OFFLINE": "0",
        "HF_HUB_DISABLE_XET": "1",  # xet speaks to a storage of its own, which is not here
        "MODELSCOPE_ENDPOINT": url,
        "MODELSCOPE_CACHE": str(home / "ms"),
        "HF_TOKEN": TOKEN,
        "MODELSCOPE_API_TOKEN": TOKEN,
    }


@contextmanager
def running_hub() -> Iterator[Hub]:
    with Hub() as hub:
        threading.Thread(target=hub.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield hub
        finally:
            hub.shutdown()


ROUTES: list[tuple[str, Callable]] = []
REPO = r"([^/]+/[^/]+)"
KIND = r"(?:datasets|models)"


def route(pattern: str) -> Callable[[Callable], Callable]:
    """The method answers requests whose "METHOD path" is of this pattern."""
    return lambda method: ROUTES.append((pattern, method)) or method


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, *_):
        pass

    def answer(self, body: Any = None, status: int = 200, **headers: str) -> None:
        """``body``: bytes, or what is sent as JSON."""
        data = (
            body if isinstance(body, bytes) else json.dumps({} if body is None else body).encode()
        )
        self.send_response(status)
        for name, value in ({"Content_Type": "application/json"} | headers).items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def handle_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urlparse(self.path)
        path, token = unquote(url.path), self.headers.get("Authorization", "")
        self.server.requests.append((self.command, path, token))
        if self.command == "POST" and UNREACHABLE.encode() in body:
            self.close_connection = True
            return None
        if self.command == "POST" and FORBIDDEN.encode() in body:
            said = f"the token {token} may not write"
            errors = {"error": said, "Message": said, "Code": 403}
            return self.answer(errors, 403, X_Error_Message=said, X_Error_Code="Forbidden")
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        for pattern, method in ROUTES:
            if match := re.fullmatch(pattern, f"{self.command} {path}"):
                return method(self, *match.groups(), body=body, query=query)
        return self.answer({"error": "unknown here"}, 404)

    do_GET = do_HEAD = do_POST = do_PUT = handle_any

    # ---- both -------------------------------------------------------------------------------

    @route(r"PUT /blob/(\w+)")
    def put_blob(self, oid, body, query):
        assert hashlib.sha256(body).hexdigest() == oid
        self.server.blobs[oid] = body
        self.answer()

    def upload_addresses(self, body):
        objects = [o for o in json.loads(body)["objects"] if o["oid"] not in self.server.blobs]
        for large in objects:
            address = f"{self.server.url}/blob/{large['oid']}"
            large["actions"] = {"upload": {"href": address}}
        return objects

    @route(r"POST /api/validate-yaml|POST /api/v1/datasets/.*/download/increase")
    def nothing_to_say(self, body, query):
        self.answer({"errors": [], "warnings": []})

    # ---- Hugging Face -----------------------------------------------------------------------

    @route("POST /api/repos/create")
    def hf_create(self, body, query):
        fields = json.loads(body)
        name = "/".join(part for part in (fields.get("organization"), fields["name"]) if part)
        address = f"{self.server.url}/datasets/{name}"
        if name in self.server.repos:
            return self.answer({"error": "exists", "url": address}, 409)
        private = fields.get("private") or fields.get("visibility") == "private"
        self.server.repos[name] = Repo(bool(private))
        return self.answer({"url": address, "name": name})

    @route(rf"POST /api/{KIND}/{REPO}/preupload/main")
    def hf_preupload(self, repo, body, query):
        files = json.loads(body)["files"]
        for file in files:
            file["uploadMode"] = "lfs" if file["path"].endswith(LARGE) else "regular"
            file["shouldIgnore"] = False
        self.answer({"files": files, "commitOid": COMMIT})

    @route(rf"POST (?:/datasets)?/{REPO}\.git/info/lfs/objects/batch")
    def hf_lfs(self, repo, body, query):
        objects = {"transfer": "basic", "objects": self.upload_addresses(body)}
        self.answer(objects, Content_Type="application/vnd.git-lfs+json")

    @route(rf"POST /api/{KIND}/{REPO}/commit/main")
    def hf_commit(self, repo, body, query):
        files = self.server.repos[repo].files
        for step in map(json.loads, body.splitlines()):
            value = step["value"]
            if step["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif step["key"] == "lfsFile":
                files[value["path"]] = self.server.blobs[value["oid"]]
        url = f"{self.server.url}/datasets/{repo}/commit/{COMMIT}"
        self.answer({"success": True, "commitOid": COMMIT, "commitUrl": url})

    @route(rf"GET /api/{KIND}/{REPO}(?:/revision/[^/]+)?")
    def hf_info(self, repo, body, query):
        if repo not in self.server.repos:
            return self.answer({"error": "none"}, 404, X_Error_Code="RepoNotFound")
        files = [{"rfilename": name} for name in self.server.repos[repo].files]
        about = {"private": False, "tags": [], "downloads": 0, "siblings": files}
        return self.answer({"id": repo, "sha": COMMIT} | about)

    @route(rf"GET /api/datasets/{REPO}/tree/[^/]+(/.*)?")
    def hf_tree(self, repo, folder, body, query):
        folder = (folder or "").strip("/")
        files = self.server.repos[repo].files
        names = [name for name in files if not folder or name.startswith(f"{folder}/")]
        if folder and not names:
            return self.answer({"error": "no such folder"}, 404, X_Error_Code="EntryNotFound")
        if query.get("recursive", "false").lower() not in ("true", "1"):
            depth = len(folder.split("/")) if folder else 0
            names = list(dict.fromkeys("/".join(n.split("/")[: depth + 1]) for n in names))
        listing = []
        for name in names:
            content = files.get(name, b"")
            oid, kind = hashlib.sha1(content).hexdigest(), "file" if name in files else "directory"
            listing.append({"type": kind, "path": name, "size": len(content), "oid": oid})
        return self.answer(listing)

    @route(rf"(?:GET|HEAD) /datasets/{REPO}/resolve/[^/]+/(.+)")
    def hf_file(self, repo, name, body, query):
        content = self.server.repos[repo].files.get(name)
        if content is None:
            return self.answer({"error": "none"}, 404, X_Error_Code="EntryNotFound")
        etag = f'"{hashlib.sha1(content).hexdigest()}"'
        headers = {"X_Repo_Commit": COMMIT, "ETag": etag}
        return self.answer(content, Content_Type="application/octet-stream", **headers)

    # ---- ModelScope -------------------------------------------------------------------------

    def ms_answer(self, data, status=200):
        self.answer({"Code": status, "Success": status == 200, "Data": data}, status)

    @route(f"POST /api/v1/({KIND})")
    def ms_create(self, kind, body, query):
        """A form for a data set, JSON for a model."""
        if kind == "models":
            fields = json.loads(body)
            fields["Owner"] = fields["Path"]
        else:
            form = re.findall(rb'name="(\w+)"\r\n\r\n([^\r]*)', body)
            fields = {name.decode(): value.decode() for name, value in form}
        name = f"{fields['Owner']}/{fields['Name']}"
        if name in self.server.repos:
            return self.answer({"Code": 10020101001, "Message": "already exists"}, 409)
        self.server.repos[name] = Repo(str(fields["Visibility"]) == "1", fields["License"])
        return self.ms_answer({"Owner": "me", "Name": name})

    @route(rf"GET /api/v1/{KIND}/{REPO}")
    def ms_info(self, repo, body, query):
        if repo not in self.server.repos:
            return self.ms_answer({}, 404)
        number = list(self.server.repos).index(repo)
        owner, name = repo.split("/")
        about = {"Id": number, "Type": 4, "Namespace": owner, "Name": name, "Visibility": 5}
        return self.ms_answer(about)

    @route(r"GET /api/v1/datasets/(\d+)/repo/tree")
    def ms_tree(self, number, body, query):
        files = list(self.server.repos.values())[int(number)].files
        root, deep = query.get("Root", "/").strip("/"), query.get("Recursive", "True") == "True"
        folders = {"/".join(n.split("/")[:i]) for n in files for i in range(1, n.count("/") + 1)}
        listing = []
        for path in [*sorted(folders), *files]:
            above, _, name = path.rpartition("/")
            if above == root or (deep and (not root or path.startswith(f"{root}/"))):
                content = files.get(path, b"")
                kind = {"Type": "blob" if path in files else "tree", "Path": path, "Name": name}
                digest = hashlib.sha256(content).hexdigest()
                listing.append(kind | {"Size": len(content), "Sha256": digest})
        page = listing if query.get("PageNumber", "1") == "1" else []
        self.ms_answer({"Files": page, "TotalCount": len(listing)})

    @route(rf"(?:GET|HEAD) /api/v1/datasets/{REPO}/repo")
    def ms_file(self, repo, body, query):
        content = self.server.repos[repo].files[query["FilePath"]]
        self.answer(content, Content_Type="application/octet-stream")

    @route(rf"POST /api/v1/repos/{KIND}/{REPO}/info/lfs/objects/batch")
    def ms_lfs(self, repo, body, query):
        self.ms_answer({"objects": self.upload_addresses(body)})

    @route(rf"POST /api/v1/repos/{KIND}/{REPO}/commit/[^/]+")
    def ms_commit(self, repo, body, query):
        files = self.server.repos[repo].files
        for action in json.loads(body)["actions"]:
            if action["type"] == "lfs":
                files[action["path"]] = self.server.blobs[action["sha256"]]
            else:
                files[action["path"]] = base64.b64decode(action["content"])
        self.ms_answer({"CommitId": COMMIT})
