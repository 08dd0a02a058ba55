"""A stand-in for the Hugging Face hub on 127.0.0.1, for planners that take a model only from there.

It has config.json, the index and the header of the weights, and answers as much of the hub's HTTP interface as the
peers use: files with ranges, the model's description, the tree. The weights themselves read as an error.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from benchmarks.peers.checkpoint import SHARD, Repository

_COMMIT = "0" * 40
_FILE = re.compile(r"/(?P<model>[^/]+/[^/]+)/resolve/[^/]+/(?P<file>.+)")
_TREE = re.compile(r"/api/models/(?P<model>[^/]+/[^/]+)/tree/[^/]+")
_ABOUT = re.compile(r"/api/models/(?P<model>[^/]+/[^/]+)(?:/revision/[^/]+)?")
_RANGE = re.compile(r"bytes=(\d+)-(\d+)")


@contextmanager
def serving(models: Mapping[str, Repository]) -> Iterator[str]:
    """The address of a hub that has ``models``, for as long as it is needed."""
    handler = type("Handler", (_Handler,), {"models": models})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def about(name: str, model: Repository) -> dict[str, Any]:
    """What the hub's API says of a model."""
    siblings = [{"rfilename": file, "size": size} for file, size in _sizes(model).items()]
    elements = dict(model.elements)
    return {
        "_id": name,
        "id": name,
        "modelId": name,
        "sha": _COMMIT,
        "private": False,
        "gated": False,
        "disabled": False,
        "tags": [],
        "downloads": 0,
        "likes": 0,
        "siblings": siblings,
        "safetensors": {"parameters": elements, "total": sum(elements.values())},
    }


def _sizes(model: Repository) -> dict[str, int]:
    return {SHARD: model.size, **{name: len(data) for name, data in model.files.items()}}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    models: Mapping[str, Repository] = {}

    def do_GET(self) -> None:
        """A file, a part of it, a tree or a description."""
        path = unquote(urlsplit(self.path).path)
        for pattern, reply in ((_FILE, self._file), (_TREE, self._tree), (_ABOUT, self._about)):
            found = pattern.fullmatch(path)
            model = self.models.get(found["model"]) if found else None
            if found and model:
                return reply(model, found)
        return self._reply(404, b"{}")

    def do_HEAD(self) -> None:
        """The same without the body."""
        self.do_GET()

    def _about(self, model: Repository, found: re.Match[str]) -> None:
        self._reply(200, json.dumps(about(found["model"], model)).encode())

    def _tree(self, model: Repository, _: re.Match[str]) -> None:
        files = [{"type": "file", "oid": _COMMIT, "path": name, "size": size} for name, size in _sizes(model).items()]
        self._reply(200, json.dumps(files).encode())

    def _file(self, model: Repository, found: re.Match[str]) -> None:
        name = found["file"]
        data = model.header if name == SHARD else model.files.get(name)
        if data is None:
            return self._reply(404, b"{}")
        size = model.size if name == SHARD else len(data)
        asked = _RANGE.fullmatch(self.headers.get("Range", ""))
        if asked is None:
            if name == SHARD and self.command != "HEAD":  # nobody may load weights
                return self._reply(416, b"")
            return self._reply(200, data, length=size)
        first, last = int(asked[1]), min(int(asked[2]), size - 1)
        part = data[first : last + 1]
        part += bytes(min(last + 1 - first, 1 << 20) - len(part)) if len(part) < last + 1 - first else b""
        return self._reply(206, part, more={"Content-Range": f"bytes {first}-{first + len(part) - 1}/{size}"})

    def _reply(
        self, status: int, body: bytes, *, length: int | None = None, more: Mapping[str, str] | None = None
    ) -> None:
        self.send_response(status)
        headers = {
            "Content-Type": "application/json",
            "ETag": f'"{sha256(body).hexdigest()}"',
            "X-Repo-Commit": _COMMIT,
            **(more or {}),
        }
        for name, value in {**headers, "Content-Length": str(len(body) if length is None else length)}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing: requests are not of interest."""
