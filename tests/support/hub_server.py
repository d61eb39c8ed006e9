"""A hub on loopback: takes what the SDKs of Hugging Face and ModelScope upload, gives it back to
``datasets``, and records every request.

It is no model of the two hubs: it speaks as much of their protocols as the SDKs asked for while
this was written (repositories, LFS uploads, commits, file listing and download).
"""

import base64
import hashlib
import json
import re
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlparse

TOKEN = "hub-token-of-the-tests-1234567890"
LARGE = (".parquet", ".safetensors", ".jpg", ".png")
COMMIT = hashlib.sha1(b"commit").hexdigest()


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
        self.unknown: list[str] = []
        self.refuse_with_echo = False

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"


def hub_environment(url, home):
    """What makes both SDKs speak to the hub at ``url``, with caches of their own."""
    return {
        "HOME": str(home),
        "HF_HOME": str(home / "hf"),
        "HF_ENDPOINT": url,
        "HF_HUB_DISABLE_XET": "1",  # xet speaks to a storage of its own, which is not here
        "MODELSCOPE_ENDPOINT": url,
        "MODELSCOPE_CACHE": str(home / "ms"),
        "HF_TOKEN": TOKEN,
        "MODELSCOPE_API_TOKEN": TOKEN,
    }


@contextmanager
def running_hub():
    hub = Hub()
    thread = threading.Thread(target=hub.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, *_):
        pass

    def answer(self, body=None, status=200, headers=(), content=None):
        data = json.dumps({} if body is None else body).encode() if content is None else content
        self.send_response(status)
        names = {name.lower() for name, _ in headers}
        for name, value in headers:
            self.send_header(name, value)
        if "content-type" not in names:
            self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def handle_any(self):
        length = int(self.headers.get("Content-Length") or 0)
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(length)
        url = urlparse(self.path)
        path = unquote(url.path)
        authorization = self.headers.get("Authorization", "")
        self.server.requests.append((self.command, path, authorization))
        if self.server.refuse_with_echo and self.command == "POST":
            said = f"the token {authorization} may not write"
            headers = [("X-Error-Message", said), ("X-Error-Code", "Forbidden")]
            return self.answer({"error": said, "Message": said, "Code": 403}, 403, headers)
        for method, pattern, act in ROUTES:
            if self.command in method and (match := re.fullmatch(pattern, path)):
                return act(self, *match.groups(), body=body, query=parse_qs(url.query))
        self.server.unknown.append(f"{self.command} {self.path}")
        self.answer({"error": "unknown here"}, 404)

    do_GET = do_HEAD = do_POST = do_PUT = handle_any

    # ---- both -------------------------------------------------------------------------------

    def put_blob(self, oid, body, query):
        assert hashlib.sha256(body).hexdigest() == oid
        self.server.blobs[oid] = body
        self.answer()

    def upload_hrefs(self, body):
        return [
            {
                **wanted,
                "actions": {"upload": {"href": f"{self.server.url}/blob/{wanted['oid']}"}},
            }
            for wanted in json.loads(body)["objects"]
            if wanted["oid"] not in self.server.blobs
        ]

    # ---- Hugging Face -----------------------------------------------------------------------

    def hf_create(self, body, query):
        wanted = json.loads(body)
        name = "/".join(part for part in (wanted.get("organization"), wanted["name"]) if part)
        if name in self.server.repos:
            return self.answer({"error": "exists", "url": f"{self.server.url}/{name}"}, 409)
        self.server.repos[name] = Repo(
            "private" in (wanted.get("visibility"), wanted.get("private") and "private")
        )
        self.answer({"url": f"{self.server.url}/datasets/{name}", "name": name})

    def hf_preupload(self, repo, body, query):
        files = [
            {
                "path": wanted["path"],
                "uploadMode": "lfs" if wanted["path"].endswith(LARGE) else "regular",
                "shouldIgnore": False,
            }
            for wanted in json.loads(body)["files"]
        ]
        self.answer({"files": files, "commitOid": COMMIT})

    def hf_lfs(self, repo, body, query):
        kind = [("Content-Type", "application/vnd.git-lfs+json")]
        self.answer({"transfer": "basic", "objects": self.upload_hrefs(body)}, headers=kind)

    def hf_commit(self, repo, body, query):
        files = self.server.repos[repo].files
        for line in body.decode().splitlines():
            step = json.loads(line)
            value = step["value"]
            if step["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif step["key"] == "lfsFile":
                files[value["path"]] = self.server.blobs[value["oid"]]
        url = f"{self.server.url}/datasets/{repo}/commit/{COMMIT}"
        self.answer({"success": True, "commitOid": COMMIT, "commitUrl": url})

    def hf_info(self, repo, body, query, revision="main"):
        if repo not in self.server.repos:
            headers = [("X-Error-Code", "RepoNotFound")]
            return self.answer({"error": "Repository not found"}, 404, headers)
        files = self.server.repos[repo].files
        self.answer(
            {
                "id": repo,
                "sha": COMMIT,
                "private": False,
                "tags": [],
                "downloads": 0,
                "siblings": [{"rfilename": name} for name in files],
            }
        )

    def hf_revision(self, repo, revision, body, query):
        self.hf_info(repo, body, query)

    def hf_listing(self, repo, names):
        files = self.server.repos[repo].files
        found = []
        for name in names:
            if name in files:
                oid = hashlib.sha1(files[name]).hexdigest()
                found.append({"type": "file", "path": name, "size": len(files[name]), "oid": oid})
            elif any(other.startswith(f"{name}/") for other in files):
                found.append({"type": "directory", "path": name, "oid": COMMIT, "size": 0})
        self.answer(found)

    def hf_paths(self, repo, revision, body, query):
        text = body.decode()
        names = json.loads(text)["paths"] if text.startswith("{") else parse_qs(text)["paths"]
        self.hf_listing(repo, [names] if isinstance(names, str) else names)

    def hf_tree(self, repo, revision, folder, body, query):
        folder = (folder or "").strip("/")
        files = self.server.repos[repo].files
        inside = [name for name in files if not folder or name.startswith(f"{folder}/")]
        if query.get("recursive", ["false"])[0].lower() not in ("true", "1"):
            depth = len(folder.split("/")) if folder else 0
            inside = list(dict.fromkeys("/".join(n.split("/")[: depth + 1]) for n in inside))
        if folder and not inside:
            return self.answer(
                {"error": "no such folder"}, 404, [("X-Error-Code", "EntryNotFound")]
            )
        self.hf_listing(repo, inside)

    def hf_file(self, repo, revision, name, body, query):
        content = self.server.repos[repo].files.get(name)
        if content is None:
            return self.answer({"error": "none"}, 404, [("X-Error-Code", "EntryNotFound")])
        headers = [
            ("X-Repo-Commit", COMMIT),
            ("ETag", f'"{hashlib.sha1(content).hexdigest()}"'),
            ("Content-Type", "application/octet-stream"),
            ("Accept-Ranges", "bytes"),
        ]
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if wanted:
            start = int(wanted[1])
            end = min(int(wanted[2] or len(content) - 1), len(content) - 1)
            headers.append(("Content-Range", f"bytes {start}-{end}/{len(content)}"))
            return self.answer(content=content[start : end + 1], status=206, headers=headers)
        self.answer(content=content, headers=headers)

    # ---- ModelScope -------------------------------------------------------------------------

    def ms_create(self, body, query):
        fields = dict(re.findall(rb'name="(\w+)"\r\n\r\n([^\r]*)', body))
        self.ms_made({name.decode(): value.decode() for name, value in fields.items()})

    def ms_create_model(self, body, query):
        fields = json.loads(body)
        self.ms_made({**fields, "Owner": fields["Path"], "Visibility": str(fields["Visibility"])})

    def ms_made(self, fields):
        name = f"{fields['Owner']}/{fields['Name']}"
        if name in self.server.repos:
            return self.answer({"Code": 10020101001, "Message": "already exists"}, 409)
        self.server.repos[name] = Repo(fields["Visibility"] == "1", fields["License"])
        self.answer({"Code": 200, "Success": True, "Data": {"Owner": "me", "Name": name}})

    def ms_info(self, repo, body, query):
        if repo not in self.server.repos:
            return self.answer({"Code": 404, "Message": "no such data set"}, 404)
        number = list(self.server.repos).index(repo)
        owner, name = repo.split("/")
        data = {"Id": number, "Type": 4, "Namespace": owner, "Name": name, "Visibility": 5}
        self.answer({"Code": 200, "Success": True, "Data": data})

    def ms_tree(self, number, body, query):
        files = list(self.server.repos.values())[int(number)].files
        page = int(query.get("PageNumber", ["1"])[0])
        root = query.get("Root", ["/"])[0].strip("/")
        folders = {"/".join(n.split("/")[:i]) for n in files for i in range(1, n.count("/") + 1)}
        deep = query.get("Recursive", ["True"])[0] == "True"
        found = []
        for name in [*sorted(folders), *files]:
            above = name.rpartition("/")[0]
            if above == root or (deep and (not root or name.startswith(f"{root}/"))):
                content = files.get(name, b"")
                found.append(
                    {
                        "Type": "blob" if name in files else "tree",
                        "Path": name,
                        "Name": name.rsplit("/", 1)[-1],
                        "Size": len(content),
                        "Sha256": hashlib.sha256(content).hexdigest(),
                    }
                )
        data = {"Files": found if page == 1 else [], "TotalCount": len(found)}
        self.answer({"Code": 200, "Success": True, "Data": data})

    def ms_file(self, repo, body, query):
        content = self.server.repos[repo].files.get(query["FilePath"][0])
        if content is None:
            return self.answer({"Code": 404, "Message": "no such file"}, 404)
        self.answer(content=content, headers=[("Content-Type", "application/octet-stream")])

    def ms_lfs(self, repo, body, query):
        self.answer({"Code": 200, "Success": True, "Data": {"objects": self.upload_hrefs(body)}})

    def ms_commit(self, repo, revision, body, query):
        files = self.server.repos[repo].files
        for action in json.loads(body)["actions"]:
            if action["type"] == "lfs":
                files[action["path"]] = self.server.blobs[action["sha256"]]
            else:
                files[action["path"]] = base64.b64decode(action["content"])
        self.answer({"Code": 200, "Success": True, "Data": {"CommitId": COMMIT}})


REPO = r"([^/]+/[^/]+)"
KIND = r"(?:datasets|models)"
ROUTES = [
    (("PUT",), r"/blob/(\w+)", Handler.put_blob),
    (("POST",), r"/api/repos/create", Handler.hf_create),
    (
        ("POST",),
        r"/api/validate-yaml",
        lambda self, **_: self.answer({"errors": [], "warnings": []}),
    ),
    (("POST",), rf"/api/{KIND}/{REPO}/preupload/main", Handler.hf_preupload),
    (("POST",), rf"(?:/datasets)?/{REPO}\.git/info/lfs/objects/batch", Handler.hf_lfs),
    (("POST",), rf"/api/{KIND}/{REPO}/commit/main", Handler.hf_commit),
    (("GET",), rf"/api/{KIND}/{REPO}", Handler.hf_info),
    (("GET",), rf"/api/datasets/{REPO}/revision/([^/]+)", Handler.hf_revision),
    (("POST",), rf"/api/datasets/{REPO}/paths-info/([^/]+)", Handler.hf_paths),
    (("GET",), rf"/api/datasets/{REPO}/tree/([^/]+)(/.*)?", Handler.hf_tree),
    (("GET", "HEAD"), rf"/datasets/{REPO}/resolve/([^/]+)/(.+)", Handler.hf_file),
    (("POST",), r"/api/v1/datasets", Handler.ms_create),
    (("POST",), r"/api/v1/models", Handler.ms_create_model),
    (("GET",), rf"/api/v1/{KIND}/{REPO}", Handler.ms_info),
    (("GET",), r"/api/v1/datasets/(\d+)/repo/tree", Handler.ms_tree),
    (("GET", "HEAD"), rf"/api/v1/datasets/{REPO}/repo", Handler.ms_file),
    (
        ("POST",),
        rf"/api/v1/datasets/{REPO}/download/increase",
        lambda self, *_, **__: self.answer(),
    ),
    (("POST",), rf"/api/v1/repos/{KIND}/{REPO}/info/lfs/objects/batch", Handler.ms_lfs),
    (("POST",), rf"/api/v1/repos/{KIND}/{REPO}/commit/([^/]+)", Handler.ms_commit),
]
