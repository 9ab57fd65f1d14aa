"""Programs that begin like new processes, without the seconds that importing torch takes in each.

A server that has imported torch, and what timm and transformers import of others, forks a process
for each program. It has computed nothing (threads would not survive a fork) and has imported none
of the three libraries of models: programs say themselves which of them are there.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import os
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any, BinaryIO

_IMPORTED = (
    "torch._dynamo",
    "roofline.cli.analysis",
    "roofline.pipeline.analyses",
    "roofline.workload.capture.passes",
    "roofline.workload.models.sources",
    # Of timm and transformers.
    "PIL.ImageOps",
    "huggingface_hub.hf_api",
    "huggingface_hub.serialization",
    "huggingface_hub.repocard",
    "regex",
    "safetensors.torch",
    "scipy.optimize",
    "tokenizers",
    "torch.distributed.checkpoint",
    "torch.distributed.elastic.multiprocessing",
    "torch.distributed.fsdp",
    "torch.distributed.tensor.parallel",
)
_LIBRARIES = {"torchvision", "timm", "transformers"}


ROOFLINE = "import runpy; runpy.run_module('roofline', run_name='__main__', alter_sys=True)\n"
"""What ``python -m roofline`` runs."""


def forked(
    program: str,
    arguments: Iterable[str] = (),
    *,
    environment: Mapping[str, str] | None = None,
    closed: Iterable[int] = (),
) -> subprocess.CompletedProcess[bytes]:
    """Runs a program as ``python -c`` does, with some of its first three descriptors closed.

    Of the variables that Python itself reads when it starts, PYTHONIOENCODING alone counts.
    """
    asks, answers = _server()
    with tempfile.TemporaryDirectory() as folder:
        said = [Path(folder) / name for name in ("stdout", "stderr")]
        request = {
            "program": program,
            "arguments": list(arguments),
            "environment": {**os.environ, **(environment or {})},
            "folder": str(Path.cwd()),
            "closed": list(closed),
            "said": [str(each) for each in said],
        }
        asks.write(json.dumps(request) + "\n")
        asks.flush()
        code = int(answers.readline())
        return subprocess.CompletedProcess(
            ["forked", program, *request["arguments"]], code, *(each.read_bytes() for each in said)
        )


@functools.cache
def _server() -> tuple[IO[str], IO[str]]:
    """What it is asked by, and what it answers with."""
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.forked_programs"],
        cwd=Path(__file__).parent.parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdin and server.stdout

    def end() -> None:
        server.communicate()

    atexit.register(end)
    return server.stdin, server.stdout


def _serve(asks: BinaryIO, answers: BinaryIO) -> None:
    for name in _IMPORTED:
        importlib.import_module(name)
    found = _LIBRARIES & sys.modules.keys()
    assert not found, f"imported with the others: {found}"
    # Children look through none of this for garbage, and seldom through what they add.
    gc.set_threshold(50_000)
    gc.freeze()
    while line := asks.readline():
        with warnings.catch_warnings():
            # Newer Pythons warn of forks beside other threads; those of numpy know of forks.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            _become(json.loads(line), (asks, answers))
        _, status = os.waitpid(child, 0)
        answers.write(f"{os.waitstatus_to_exitcode(status)}\n".encode())
        answers.flush()


def _become(asked: dict[str, Any], inherited: Iterable[BinaryIO]) -> None:
    """Makes this process the one that was asked for, and ends it."""
    code = 1
    try:
        for each in inherited:
            each.close()
        for number, name in enumerate((os.devnull, *asked["said"])):
            opened = os.open(name, os.O_RDWR | os.O_CREAT)
            os.dup2(opened, number)
            os.close(opened)
        os.environ.clear()
        os.environ.update(asked["environment"])
        os.chdir(asked["folder"])
        sys.argv = ["-c", *asked["arguments"]]
        sys.path[0] = ""
        for number in asked["closed"]:
            os.close(number)
        # As Python has them when it starts.
        encoding = os.environ.get("PYTHONIOENCODING")
        for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
            errors = "backslashreplace" if name == "stderr" else "strict"
            stream: IO[Any] | None = None
            if number not in asked["closed"]:
                stream = open(number, mode, encoding=encoding, errors=errors, closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)
        code = _ran(asked["program"])
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    finally:
        os._exit(code)


def _ran(program: str) -> int:
    """The exit code with which Python would end."""
    try:
        exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    # What is imported, and what forks write, is no answer.
    asks, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    _serve(asks, answers)
