"""The three layers of the image, each kept in the cache under a key of what it is made from.

Debian with Python and Java (changes with the release), the virtual environment (changes with the lock), the product's
own code (changes with every edit, made in about a second).
"""

import hashlib
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import textwrap
import tomllib

from hack.image.lock import runtime_requirements
from hack.image.oci import tar_dir


def words(text: str) -> list[str]:
    """A long list, written as text."""
    return text.split()


RECIPE = "1"  # raise it when the steps below change what comes out
PACKAGES = ("python3", "python3-venv", "ca-certificates", "default-jre-headless")
USER_ID = 185  # the user the Spark operator's images run as; Hadoop needs a passwd entry for it
PYTHON_ROOTS = {"engine": "omnigraph", "server": "omnigraph_server", "operator": "omnigraph_operator"}
BASE_EXCLUDES = words("""
    ./var/cache/* ./var/lib/apt/lists/* ./var/log/* ./usr/share/doc/* ./usr/share/man/* ./usr/share/locale/*
    ./usr/share/info/* ./dev/* ./proc/* ./sys/* ./tmp/* ./opt/* ./stage
""")
# Parts of Spark the product never calls (measured: every job ran without them). orc-* and jts-core look unused too,
# but reading any file fails without them.
UNUSED_JARS = words("""
    rocksdbjni leveldbjni spark-connect spark-mllib spark-graphx spark-repl spark-pipelines spark-hive hive- derby
    datanucleus jdo breeze spire cats-kernel algebra arpack lapack blas JTransforms netty-tcnative kqueue scala-compiler
    zookeeper curator libthrift libfb303 jline tink ST4 antlr-runtime HikariCP joda-time scala-parallel-collections
""")


class BuildError(Exception):
    """A step of the image build can't be done; the message says what to do."""


def key(*parts: str) -> str:
    """Twelve hex digits that stand for the parts."""
    return hashlib.sha256(json.dumps([RECIPE, *parts]).encode()).hexdigest()[:12]


class Layers:
    """Makes the layers for one checkout, in one cache folder."""

    def __init__(self, checkout: pathlib.Path, cache: pathlib.Path) -> None:
        self.checkout = checkout
        self.cache = cache
        self.release = platform.freedesktop_os_release().get("VERSION_CODENAME", "stable")
        self.base_key = key(self.release, *PACKAGES)
        self.rootfs = cache / f"rootfs-{self.base_key}"

    def base(self) -> pathlib.Path:
        """Debian's smallest system with Python and a headless Java."""
        layer = self.cache / f"base-{self.base_key}.tar"
        if layer.exists() and self.rootfs.exists():
            return layer
        if os.geteuid() or not shutil.which("debootstrap"):
            raise BuildError("building the image needs root and debootstrap (apt-get install debootstrap), or Docker")
        say(f"base layer: {self.release} with {', '.join(PACKAGES)} (about two minutes, once)")
        partial = self.rootfs.with_name(self.rootfs.name + ".partial")
        remove(partial)
        remove(self.rootfs)
        run("debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", self.release, partial, mirror())
        run("chroot", partial, "useradd", "--uid", str(USER_ID), "--gid", "0", "--home-dir", "/tmp",
            "--no-create-home", "--shell", "/bin/bash", "omnigraph")  # fmt: skip
        tar_dir(partial, layer, exclude=BASE_EXCLUDES)
        partial.rename(self.rootfs)
        return layer

    def venv(self) -> pathlib.Path:
        """/opt/venv with what the lock says the product needs at run time."""
        requirements = runtime_requirements((self.checkout / "requirements.lock").read_text())
        layer = self.cache / f"venv-{key(self.base_key, requirements)}.tar"
        if layer.exists():
            return layer
        say("environment layer: the lock's requirements (about a minute, once for each lock)")
        remove(self.rootfs / "opt")
        (self.rootfs / "opt").mkdir()
        shutil.copy("/etc/resolv.conf", self.rootfs / "etc/resolv.conf")
        shutil.copy("/etc/ssl/certs/ca-certificates.crt", self.rootfs / "tmp/ca.crt")
        (self.rootfs / "tmp/requirements.txt").write_text(requirements)
        self.inside("python3", "-m", "venv", "/opt/venv")
        self.inside("/opt/venv/bin/pip", "install", "--no-cache-dir", "--no-compile", "--require-hashes",
                    "--requirement", "/tmp/requirements.txt")  # fmt: skip
        self.slim()
        self.inside("/opt/venv/bin/python", "-m", "compileall", "-q", "-j", "2", "--invalidation-mode",
                    "unchecked-hash", "/opt/venv/lib")  # fmt: skip
        tar_dir(self.rootfs, layer, names=["./opt"])
        return layer

    def slim(self) -> None:
        """Drop what no process of the product opens; /opt/spark is where Spark expects itself."""
        packages = self.site_packages()
        spark = packages / "pyspark"
        for jar in (spark / "jars").glob("*.jar"):
            if jar.name.startswith(tuple(UNUSED_JARS)):
                jar.unlink()
        # The zips shadow the packages beside them and their modules are compiled anew at every start.
        for archive in (spark / "python/lib").glob("*.zip"):
            archive.unlink()
        for name in ("pyspark/examples", "pyspark/data", "pip", "setuptools", "pkg_resources", "kubernetes/aio"):
            remove(packages / name)
        for name in ("numpy", "scipy", "pyarrow", "pyspark"):
            for tests in [path for path in (packages / name).rglob("tests") if path.is_dir()]:
                remove(tests)
        for name in ("pyarrow/include", "pyarrow/src"):
            remove(packages / name)
        (self.rootfs / "opt/spark").symlink_to(
            "/" / packages.relative_to(self.rootfs) / "pyspark", target_is_directory=True
        )

    def code(self) -> pathlib.Path:
        """The three packages as if installed, their command, and the image's entry points."""
        stage = self.rootfs / "stage"
        remove(stage)
        packages = stage / "opt/venv/lib" / self.python() / "site-packages"
        for root, package in PYTHON_ROOTS.items():
            shutil.copytree(
                self.checkout / root / package, packages / package, ignore=shutil.ignore_patterns("__pycache__")
            )
        project = tomllib.loads((self.checkout / "pyproject.toml").read_text())["project"]
        info = packages / f"omnigraph-{project['version']}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: omnigraph\nVersion: {project['version']}\n")
        lines = ["[console_scripts]", *(f"{name} = {to}" for name, to in project["scripts"].items())]
        for group, entries in project.get("entry-points", {}).items():
            lines += [f"[{group}]", *(f"{name} = {to}" for name, to in entries.items())]
        (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
        self.scripts(stage)
        self.inside("python3", "-m", "compileall", "-q", "-s", "/stage", "--invalidation-mode", "unchecked-hash",
                    "/stage/opt/venv/lib")  # fmt: skip
        layer = self.cache / f"code-{key(str(self.checkout))}.tar"
        tar_dir(stage, layer, names=["./opt"])
        remove(stage)
        return layer

    def scripts(self, stage: pathlib.Path) -> None:
        """`omnigraph`, its alias for the server, what Spark starts in a driver pod, and the entry point."""
        binaries, home = stage / "opt/venv/bin", stage / "opt/omnigraph"
        binaries.mkdir(parents=True)
        home.mkdir(parents=True)
        main = "from omnigraph.cli.main import main\n\n"
        command = textwrap.dedent("""\
            #!/opt/venv/bin/python
            import sys

            """)
        (binaries / "omnigraph").write_text(f"{command}{main}sys.exit(main())\n")
        (binaries / "omnigraph-server").write_text(f'{command}{main}sys.argv[1:1] = ["serve"]\nsys.exit(main())\n')
        (home / "driver.py").write_text(f'"""Where a SparkApplication begins."""\n\n{main}main()\n')
        shutil.copy(self.checkout / "hack/image/entrypoint.sh", home / "entrypoint.sh")
        for script in (*binaries.iterdir(), home / "entrypoint.sh"):
            script.chmod(0o755)

    def python(self) -> str:
        """The base's Python as its folder is called, for example ``python3.11``."""
        return (self.rootfs / "usr/bin/python3").readlink().name

    def site_packages(self) -> pathlib.Path:
        return self.rootfs / "opt/venv/lib" / self.python() / "site-packages"

    def inside(self, *command: str) -> None:
        """Run a command in the base, with this machine's proxy and package index."""
        passed = {
            name: value
            for name, value in os.environ.items()
            if name.lower().endswith("_proxy")
            or name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_DEFAULT_TIMEOUT")
        }
        run("chroot", self.rootfs, *command, env={
            **passed, "PIP_CERT": "/tmp/ca.crt", "PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/tmp",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore"})  # fmt: skip


def run(*command: str | pathlib.Path, env: dict[str, str] | None = None) -> None:
    """Run a step with its output on standard error."""
    result = subprocess.run([str(part) for part in command], env=env, stdout=sys.stderr, check=False)
    if result.returncode:
        raise BuildError(f"{command[0]} ended with {result.returncode}: see its output above")


def mirror() -> str:
    """The Debian mirror this machine's apt uses."""
    sites = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(SITE)"], check=True, capture_output=True, text=True
    ).stdout.split()
    for site in sites:
        if not site.rstrip("/").endswith("-security"):
            return site
    raise BuildError("apt on this machine has no mirror configured; run apt-get update first")


def remove(path: pathlib.Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
