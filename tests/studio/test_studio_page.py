"""`vlrft studio` as a browser sees it, and as somebody without one does."""

import asyncio
import json
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest
from support.pictures import data_url, image_file, png_of
from support.swift_run import REPOSITORY

pytest.importorskip("gradio", reason="gradio is not installed: pip install swift-vlrft[studio]")
pytestmark = pytest.mark.slow

SWIFT = "swift rlhf --rlhf_type grpo --model Qwen/Qwen2-VL-2B-Instruct --dataset a/b "
ANSWER = "<think>t</think><answer>[{'Position': [100, 200, 500, 800]}]</answer>"
GOLD = "[{'Position': [100, 200, 500, 600]}]"
HTML = "<script>window.pwned = 1</script><img src=x onerror='window.pwned = 1'>${window.pwned = 1}"


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("studio") / "log"
    code = "from swift_vlrft.cli import app; app()"
    with open(log, "wb") as file:
        server = subprocess.Popen(
            [sys.executable, "-c", code, "studio", "--port", str(port)], stdout=file, stderr=file
        )
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(240):
            time.sleep(0.5)
            assert server.poll() is None, log.read_text()
            try:
                urllib.request.urlopen(address, timeout=5).read()
                break
            except OSError:
                continue
        yield address
        assert server.poll() is None, log.read_text()
    finally:
        server.terminate()
        server.wait(30)


def status(url, data=None, **headers):
    try:
        asked = urllib.request.Request(url, data, headers)
        return urllib.request.urlopen(asked, timeout=30).status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0  # the server closed the connection


def submit(url, function, *values):
    """What a browser does when a button is pressed: the answer in HTML."""
    with urllib.request.urlopen(f"{url}/config", timeout=30) as answer:
        config = json.load(answer)
    buttons = [one for one in config["dependencies"] if one["targets"][0][1] == "click"]
    number = buttons[("plan", "exact", "check", "why").index(function)]["id"]
    session = f"s{time.monotonic_ns()}"
    body = {"data": values, "fn_index": number, "session_hash": session}
    asked = urllib.request.Request(
        f"{url}/gradio_api/queue/join",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    urllib.request.urlopen(asked, timeout=60).read()
    with urllib.request.urlopen(f"{url}/gradio_api/queue/data?session_hash={session}") as stream:
        for line in stream:
            told = json.loads(line.removeprefix(b"data:")) if line.startswith(b"data:") else {}
            if told.get("msg") == "process_completed":
                assert told["success"], told
                return told["output"]["data"][0]
    raise AssertionError("the stream ended without an answer")


# ---- without a browser ---------------------------------------------------------------------


def test_the_page_answers_and_lives_on(url):
    why = (["vlrft_detection_iou"], "norm1000")
    asked = [
        (("check", "x" * 1_050_000), "1,050,000 characters"),
        (("check", "if true; then\n" + SWIFT), "must end with `fi`"),
        (("plan", SWIFT, "4x24", ""), "GiB on each GPU"),
        (("plan", SWIFT, "many", ""), "not of the form"),
        (("why", *why, "a" * 10_000_000, GOLD, "", "", ""), "10,000,000 characters"),
        (("why", *why, HTML, HTML, "", "", ""), "&lt;script&gt;"),
        (("why", *why, ANSWER, GOLD, "", "", data_url(png_of(20_000, 20_000))), "more than 40,"),
        (("why", *why, ANSWER, GOLD, "", "", "/etc/passwd"), "cannot be read"),
        (("why", [], *why[1:], ANSWER, GOLD, "", "", ""), "choose a reward"),
        (("check", 5), "failed on this"),
        (("check", SWIFT + "--betta 1"), "has no --betta"),
    ]
    for given, says in asked:
        shown = submit(url, *given)
        assert says in shown
        assert "<script" not in shown and "onerror='" not in shown


REFUSED = (
    *("/gradio_api/upload", "/gradio_api/upload_progress?upload_id=1", "/upload"),
    *("/gradio_api/file=/etc/passwd", "/file=/etc/passwd", "/gradio_api/file/etc/passwd"),
    *("/gradio_api/proxy=http://127.0.0.1:9/", "/gradio_api/component_server"),
    *("/gradio_api/call/check", "/gradio_api/run/check", "/gradio_api/api/check", "/api/predict"),
    *("/gradio_api/deep_link", "/gradio_api/stream/x/1/2/playlist.m3u8", "/monitoring"),
    *("/gradio_api/run-history/records", "/gradio_api/vibe-edit/", "/openapi.json", "/docs"),
    *("/static/../../../../etc/passwd", "/static/%2e%2e/%2e%2e/config", "/gradio_api/token"),
    *("/gradio_api/mcp/sse", "/dev/reload", "/custom_component/1/a/b/c", "/login"),
)


@pytest.mark.parametrize("path", REFUSED)
def test_no_route_stores_fetches_or_serves_files(url, path):
    assert status(url + path) == 404
    assert status(url + path, b"{}") == 404


def test_no_value_of_a_request_is_fetched_or_copied(monkeypatch):
    """Gradio takes {"path": ADDRESS, "meta": ...} for a file, in any component."""
    from gradio import processing_utils

    from swift_vlrft.studio.page import build

    async def fetched(*given, **named):
        raise AssertionError("fetched")

    monkeypatch.setattr(processing_utils, "async_ssrf_protected_download", fetched)
    monkeypatch.setattr(processing_utils, "save_file_to_cache", fetched)
    page = build(None)
    assert len(page.blocks) > 20
    for block in page.blocks.values():
        for path in ("http://example.org/x", "/etc/passwd", __file__):
            value = {"path": path, "meta": {"_type": "gradio.FileData"}}
            with pytest.raises(ValueError):
                asyncio.run(processing_utils.async_move_files_to_cache(value, block))


def test_a_huge_request_is_refused(url):
    join = url + "/gradio_api/queue/join"
    assert status(join, b" " * 33 * 2**20) in (413, 0)
    assert status(join, b"{}", **{"Content-Length": "9" * 30}) in (400, 413, 0)
    assert status(join, b"not json", **{"Content-Type": "application/json"}) in (400, 422, 500)
    assert status(url) == 200


def test_a_port_that_is_taken_is_named(url):
    port = url.rsplit(":", 1)[1]
    code = f"from swift_vlrft.cli import app; app(['studio', '--port', '{port}'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2 and not done.stdout
    assert f"--port {port}: Address already in use" in done.stderr


def test_an_app_for_a_space_serves_the_same_page():
    import inspect
    import runpy

    from swift_vlrft.studio import page

    given, real = [], page.serve
    page.serve = lambda *values: given.append(inspect.signature(real).bind(*values).arguments)
    try:
        runpy.run_path(str(REPOSITORY / "examples" / "studio" / "app.py"))
    finally:
        page.serve = real
    assert given == [{"host": "0.0.0.0", "port": 7860}]


# ---- with a browser ------------------------------------------------------------------------

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("no chromium is installed; the tests without a browser ran")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as running:
        found = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(params=[(1280, 900), (390, 844)], ids=["desktop", "phone"])
def page(browser, url, request):
    width, height = request.param
    found = browser.new_page(viewport={"width": width, "height": height})
    found.set_default_timeout(30_000)
    asked, dialogs = [], []
    found.on("request", lambda one: asked.append(one.url))
    found.on("dialog", lambda one: (dialogs.append(one.message), one.dismiss()))
    found.goto(url)
    found.get_by_role("button", name="Plan", exact=True).wait_for()
    yield found
    assert all(one.startswith((url, "data:", "blob:")) for one in asked)  # from nowhere else
    assert not dialogs and not found.evaluate("window.pwned")
    assert found.evaluate("document.documentElement.scrollWidth") <= width
    found.close()


def open_tab(page, name):
    tab = page.get_by_role("tab", name=name)
    if not tab.is_visible():  # on a phone, behind three dots
        page.locator(".overflow-menu > button").first.click()
        tab = page.locator(".overflow-dropdown button", has_text=name)
    tab.click()


def press(page, name):
    page.get_by_role("button", name=name, exact=True).click()


def answer(page, says):
    found = page.locator(".vlrft:visible", has_text=says)
    found.wait_for()
    return found


def test_a_plan_and_a_check(page):
    press(page, "Plan")
    assert "an optimizer step on A100-80" in answer(page, "GiB on each GPU").inner_text()
    page.get_by_label("GPUs of a node").fill("4x24")
    press(page, "Plan")
    answer(page, "out of memory")
    page.get_by_label("GPUs of a node").fill(HTML[:39])
    press(page, "Plan")
    answer(page, "not of the form")
    open_tab(page, "Recipe check")
    press(page, "Check")
    answer(page, "no problems")
    page.locator(".cm-content:visible").fill(SWIFT + f"--betta '{HTML[:35]}'\n")
    press(page, "Check")
    assert "has no --betta" in answer(page, "Did you mean --beta").inner_text()
    page.locator(".cm-content:visible").fill("if true; then " + SWIFT)
    press(page, "Check")
    answer(page, "must end with `fi`")


def test_why_with_boxes_over_the_image(page, tmp_path):
    open_tab(page, "Why this score")
    page.get_by_label("Completion", exact=True).fill(ANSWER)
    page.get_by_label("Solution (gold)").fill(GOLD)
    (tmp_path / "image.jpg").write_bytes(image_file((400, 200), "JPEG"))
    chooser = page.locator(".vlrft-file input")
    chooser.set_input_files(tmp_path / "image.jpg")
    press(page, "Why")
    answer(page, "400 x 200 pixels")
    image = page.locator(".vlrft .image img").bounding_box()
    for kind, box in (("gold", (0.1, 0.2, 0.4, 0.4)), ("answer", (0.1, 0.2, 0.4, 0.6))):
        drawn = page.locator(f".vlrft .box.{kind}").bounding_box()
        x, y, width, height = box
        assert drawn["x"] == pytest.approx(image["x"] + x * image["width"], abs=2)
        assert drawn["y"] == pytest.approx(image["y"] + y * image["height"], abs=2)
        assert drawn["width"] == pytest.approx(width * image["width"], abs=2)
        assert drawn["height"] == pytest.approx(height * image["height"], abs=2)
    for content, says in (
        (png_of(20_000, 20_000), "more than 40,000,000 pixels"),
        (b"hello", "cannot be read"),
        (b"\0" * 11 * 2**20, "11.0 MiB; this page takes 10 MiB"),
    ):
        (tmp_path / "odd.png").write_bytes(content)
        chooser.set_input_files(tmp_path / "odd.png")
        press(page, "Why")
        answer(page, says)
    chooser.set_input_files([])
    page.get_by_label("Completion", exact=True).fill(f"<answer>{HTML}</answer>")
    press(page, "Why")
    assert HTML in answer(page, "no list of boxes").locator("pre").first.inner_text()
    assert page.locator(".vlrft .image").count() == 0


def test_the_rewards_follow_the_task(page):
    open_tab(page, "Why this score")
    page.get_by_label("Task").click()
    page.get_by_role("option", name="counting", exact=True).click()
    page.get_by_label("vlrft_counting_soft").wait_for()
    page.get_by_label("Completion", exact=True).fill("<answer>4</answer>")
    page.get_by_label("Solution (gold)").fill("4")
    press(page, "Why")
    assert re.search(r"vlrft_counting\s+1\.000", answer(page, "full score").inner_text())
