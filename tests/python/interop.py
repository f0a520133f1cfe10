"""The Python package `kernels` and kernelhub on one Hub, one cache and one lock file. No Torch.

Usage: interop.py KERNELHUB REGISTRY, where REGISTRY is the folder of the packed kernels of this project.
"""

import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from fake_hub import FakeHub, Repo  # noqa: E402

REPO = "kernels-test/rmsnorm"

# What the user of these tools trusts.
POLICY = """schema = 1

[[endpoint]]
url = "{endpoint}"

[[publisher]]
name = "kernels-test"
trust = true
from = ["hub", "archive"]
"""

LOAD = f"""
import json, sys
import numpy
import tvm_ffi
from kernels import get_kernel, get_locked_kernel, load_kernel
from pathlib import Path

how = sys.argv[1]
if how == "version":
    kernel = get_kernel("{REPO}", version=1)
else:
    kernel = load_kernel("{REPO}", lockfile=Path(how))
rows = numpy.arange(12, dtype=numpy.float32).reshape(2, 6) - 3
weight = numpy.linspace(0.5, 1.5, 6, dtype=numpy.float32)
out = numpy.zeros_like(rows)
view = tvm_ffi.from_dlpack
kernel.rms_norm(view(out), view(rows), view(weight), 1e-6)
print(json.dumps({{"path": str(Path(kernel.__file__).resolve()), "file": kernel.__file__, "out": out.tolist()}}))
"""


def expected():
    rows = [[i + 6 * row - 3 for i in range(6)] for row in range(2)]
    weight = [0.5 + i / 5 for i in range(6)]
    scale = [1 / math.sqrt(sum(x * x for x in row) / 6 + 1e-6) for row in rows]
    return [[x * s * w for x, w in zip(row, weight)] for row, s in zip(rows, scale)]


def check(condition, what, found=None):
    if not condition:
        raise SystemExit(f"FAILED: {what}\nfound: {found}")
    print(f"ok: {what}", flush=True)


class Machine:
    """One cache, with both tools on it."""

    def __init__(self, kernelhub, home, endpoint):
        self.kernelhub = kernelhub
        self.home = home
        drop = ("HF_", "KERNELS_", "XDG_CACHE", "LOCAL_KERNELS", "KERNELHUB_")
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(drop)}
        # Not HF_HUB_DISABLE_TELEMETRY: with it, kernels 0.17.2 sends a header that its own HTTP client refuses.
        policy = home.parent / "policy.toml"
        policy.write_text(POLICY.format(endpoint=endpoint))
        self.environment |= {"HF_HOME": str(home), "HF_ENDPOINT": endpoint, "KERNELHUB_POLICY": str(policy)}

    def run(self, command, offline=False, cwd=None):
        environment = self.environment | ({"HF_HUB_OFFLINE": "1"} if offline else {})
        done = subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True)
        if done.returncode != 0:
            shown = " ".join(str(part) for part in command)[:200]
            raise SystemExit(f"FAILED: {shown}\n{done.stdout}{done.stderr}")
        return done.stdout

    def rust(self, *arguments, **options):
        return json.loads(self.run([self.kernelhub, *arguments, "--json"], **options))

    def python(self, how, **options):
        result = json.loads(self.run([sys.executable, "-c", LOAD, how], **options))
        pairs = [pair for ours, theirs in zip(result["out"], expected()) for pair in zip(ours, theirs)]
        check(all(abs(a - b) < 1e-5 for a, b in pairs), f"Python computes with the kernel ({how})", result["out"])
        return result

    def kernels(self, *arguments, **options):
        return self.run([sys.executable, "-c", "from kernels.cli import main; main()", *arguments], **options)


def project(folder):
    folder.mkdir()
    (folder / "pyproject.toml").write_text(f'[tool.kernels.dependencies]\n"{REPO}" = 1\n')
    return folder


def main():
    kernelhub, registry = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        manifest = registry / "rmsnorm.toml"
        fetch = [kernelhub, "fetch", "--manifest", manifest, "--cache", work / "packs", "--all-variants", "--json"]
        rows = json.loads(subprocess.run(fetch, check=True, capture_output=True, text=True).stdout)
        build = work / "repo" / "build"
        build.mkdir(parents=True)
        for row in rows:
            if row["variant"].startswith("tvm-ffi"):
                Path(row["path"]).rename(build / row["variant"])
        hub = FakeHub({REPO: Repo(work / "repo")})
        machine = lambda folder: Machine(kernelhub, work / folder, hub.url)  # noqa: E731

        first = machine("python-first")
        by_python = first.python("version")
        hub.requests.clear()
        by_rust = first.rust("get", f"{REPO}@v1")
        check(by_rust["from_cache"] and by_rust["bytes_fetched"] == 0, "kernelhub takes what Python fetched", by_rust)
        # Python records no ref when it resolves a version.
        check(hub.requests == [f"GET /api/kernels/{REPO}/refs"], "... with one request, for the version", hub.requests)
        hub.requests.clear()
        first.rust("get", f"{REPO}@v1", "--offline")
        first.rust("get", f"{REPO}@{by_rust['revision']}", "--offline")
        check(hub.requests == [], "... and from then on without one", hub.requests)
        check(Path(by_python["file"]).is_relative_to(by_rust["path"]), "... from the same folder", by_rust["path"])

        second = machine("rust-first")
        by_rust = second.rust("get", f"{REPO}@v1")
        check(not by_rust["from_cache"], "kernelhub fetches from the Hub", by_rust)
        hub.requests.clear()
        by_python = second.python("version", offline=True)
        check(hub.requests == [], "Python takes what kernelhub fetched, offline, by version", hub.requests)
        check(Path(by_python["file"]).is_relative_to(by_rust["path"]), "... from the same folder", by_python)

        theirs, ours = project(work / "theirs"), project(work / "ours")
        locker = machine("lock")
        locker.kernels("lock", str(theirs))
        locker.rust("lock", str(ours))
        texts = [(folder / "kernels.lock").read_bytes() for folder in (theirs, ours)]
        check(texts[0] == texts[1], "both tools write the same kernels.lock", texts)

        third = machine("their-lock")
        rows = third.rust("download", str(theirs))
        check([row["revision"] for row in rows] == [by_rust["revision"]], "kernelhub downloads what Python locked", rows)
        third.python(str(theirs / "kernels.lock"), offline=True)

        fourth = machine("our-lock")
        fourth.kernels("download", str(ours))
        fourth.python(str(ours / "kernels.lock"), offline=True)
        hub.requests.clear()
        rows = fourth.rust("download", str(ours), "--offline")
        check(all(row["from_cache"] for row in rows), "kernelhub verifies Python's download against the lock", rows)
        check(hub.requests == [], "... without a request", hub.requests)

        locker.rust("lock", str(ours))
        locker.rust("download", str(ours))
        bundle = work / "kernels.tar.zst"
        exported = locker.rust("export", str(bundle), str(ours))
        island = machine("island")
        hub.requests.clear()
        island.rust("import", str(bundle), "--sha256", exported["sha256"])
        island.python("version", offline=True)
        island.python(str(ours / "kernels.lock"), offline=True)
        check(hub.requests == [], "Python takes what kernelhub imported, without a request", hub.requests)
    print("all checks passed")


if __name__ == "__main__":
    main()
