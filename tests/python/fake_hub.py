"""A Hub for kernel repos on loopback: the requests that `kernels`, `huggingface_hub` and kernelhub make, from folders."""

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

# The Hub keeps files from about this size on outside git, known by their sha256.
LARGE_BYTES = 4096


def git_oid(kind, content):
    return hashlib.sha1(f"{kind} {len(content)}\0".encode() + content).hexdigest()


class Repo:
    """One kernel repo with one version: a folder that holds `build/<variant>/...`."""

    def __init__(self, folder, version=1):
        self.folder = Path(folder)
        self.version = version
        files = sorted(path for path in self.folder.rglob("*") if path.is_file())
        self.files = {path.relative_to(self.folder).as_posix(): path.read_bytes() for path in files}
        state = "".join(f"{name}\0{git_oid('blob', content)}\n" for name, content in self.files.items())
        self.commit = hashlib.sha1(state.encode()).hexdigest()

    def is_revision(self, text):
        return text in (self.commit, f"v{self.version}", f"refs/heads/v{self.version}")

    def tree(self, folder, recursive):
        """The entries of a folder, in the form of the Hub's API."""
        prefix = f"{folder}/" if folder else ""
        entries = {}
        for name, content in self.files.items():
            if not name.startswith(prefix):
                continue
            parts = name[len(prefix) :].split("/")
            depths = range(1, len(parts)) if recursive else range(1, min(2, len(parts)))
            for depth in depths:
                path = prefix + "/".join(parts[:depth])
                entries[path] = {"type": "directory", "oid": git_oid("tree", path.encode()), "size": 0, "path": path}
            if recursive or len(parts) == 1:
                entry = {"type": "file", "oid": git_oid("blob", content), "size": len(content), "path": name}
                if len(content) >= LARGE_BYTES:
                    entry["lfs"] = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}
                entries[name] = entry
        return [entries[path] for path in sorted(entries)]


class FakeHub:
    """Serves repos by their ids. `requests` is what was asked, in order, as `METHOD path`."""

    def __init__(self, repos):
        self.requests = []
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_HEAD(self):
                hub.requests.append(f"HEAD {self.path}")
                self.reply(*answer(repos, self.path))

            def do_GET(self):
                hub.requests.append(f"GET {self.path}")
                self.reply(*answer(repos, self.path))

            def reply(self, status, body, headers):
                start = 0
                wanted = self.headers.get("Range")
                if status == 200 and wanted and wanted.startswith("bytes=") and wanted.endswith("-"):
                    start = int(wanted[len("bytes=") : -1])
                    status = 206
                    headers = {**headers, "Content-Range": f"bytes {start}-{len(body) - 1}/{len(body)}"}
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body) - start))
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body[start:])

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


def as_json(value):
    return 200, json.dumps(value).encode(), {"Content-Type": "application/json"}


NOT_FOUND = (404, b'{"error":"not found"}', {"Content-Type": "application/json", "X-Error-Code": "RepoNotFound"})


def answer(repos, target):
    """The status, body and headers for a request."""
    url = urlsplit(target)
    parts = unquote(url.path).strip("/").split("/")
    if parts[:2] == ["api", "organizations"] and len(parts) == 4 and parts[3] == "overview":
        known = any(repo.startswith(f"{parts[2]}/") for repo in repos)
        overview = {"name": parts[2], "fullname": parts[2], "avatarUrl": "", "trustedKernelPublisher": True}
        return as_json(overview) if known else NOT_FOUND
    is_api = parts[0] == "api"
    rest = parts[1:] if is_api else parts
    repo = repos.get("/".join(rest[1:3])) if rest[:1] == ["kernels"] else None
    if repo is None:
        return NOT_FOUND
    name, action = "/".join(rest[1:3]), rest[3:]
    if is_api and (not action or action[0] == "revision" and repo.is_revision("/".join(action[1:]))):
        siblings = [{"rfilename": path} for path in repo.files]
        return as_json({"_id": "0", "id": name, "author": rest[1], "sha": repo.commit, "private": False, "siblings": siblings})
    if is_api and action == ["refs"]:
        branches = [{"name": f"v{repo.version}", "ref": f"refs/heads/v{repo.version}", "targetCommit": repo.commit}]
        return as_json({"branches": branches, "tags": [], "converts": []})
    if is_api and action[0] == "tree" and len(action) > 1 and repo.is_revision(action[1]):
        query = parse_qs(url.query)
        recursive = query.get("recursive", ["false"])[0].lower() in ("true", "1")
        return as_json(repo.tree("/".join(action[2:]), recursive))
    if not is_api and action[:1] == ["resolve"] and len(action) > 2 and repo.is_revision(action[1]):
        content = repo.files.get("/".join(action[2:]))
        if content is not None:
            is_large = len(content) >= LARGE_BYTES
            tag = hashlib.sha256(content).hexdigest() if is_large else git_oid("blob", content)
            headers = {"ETag": f'"{tag}"', "X-Repo-Commit": repo.commit, "Accept-Ranges": "bytes"}
            if is_large:
                headers |= {"X-Linked-Etag": f'"{tag}"', "X-Linked-Size": str(len(content))}
            return 200, content, headers
    return NOT_FOUND
