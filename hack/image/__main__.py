"""`python -m hack.image`: the image `localhost/omnigraph:dev`, built without a registry or an image builder.

    python -m hack.image [--out FILE.tar] [--name NAME] [--load]

`--load` puts it into this checkout's test cluster; layers the node has already are not sent again, so that a code
change is in the cluster after a few seconds. Needs root and debootstrap; people with Docker have hack/image/Dockerfile.
Layers are kept in the user's cache folder (about 3 GB).
"""

import argparse
import fcntl
import pathlib
import sys
import tempfile
import time

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
NAME = "localhost/omnigraph:dev"
ENVIRONMENT = (
    "PATH=/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME=/tmp",
    "LANG=C.UTF-8",
    "SPARK_HOME=/opt/spark",
    "PYSPARK_PYTHON=/opt/venv/bin/python",
    "PYTHONUNBUFFERED=1",
    "PYTHONDONTWRITEBYTECODE=1",
)


def main() -> None:
    """Build, then write or load."""
    from hack.cluster.cluster import cluster
    from hack.cluster.machine import ClusterError
    from hack.cluster.parts import cache_dir, install_packages
    from hack.image.layers import USER_ID, BuildError, Layers
    from hack.image.oci import Image, write_image

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, help="write the whole image to this tar")
    parser.add_argument("--name", default=NAME)
    parser.add_argument("--load", action="store_true", help="put it into this checkout's test cluster")
    options = parser.parse_args()
    start = time.monotonic()
    cache = cache_dir() / "image"
    cache.mkdir(parents=True, exist_ok=True)
    try:
        with (cache / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            install_packages()
            layers = Layers(CHECKOUT, cache)
            image = Image(
                options.name,
                [layers.base(), layers.venv(), layers.code()],
                entrypoint=["/opt/omnigraph/entrypoint.sh"],
                command=["omnigraph", "--help"],
                env=ENVIRONMENT,
                workdir="/tmp",
                user=f"{USER_ID}:0",
            )
            megabytes = sum(layer.stat().st_size for layer in image.layers) / 1e6
            print(f"{options.name}: {megabytes:.0f} MB in {len(image.layers)} layers, {time.monotonic() - start:.1f} s")
            if options.out:
                write_image(options.out, image)
                print(f"written to {options.out}, {time.monotonic() - start:.1f} s")
            if options.load:
                node = cluster()
                with tempfile.NamedTemporaryFile(dir=cache, suffix=".tar") as tar:
                    sent = write_image(pathlib.Path(tar.name), image, present=node.layers())
                    node.load(pathlib.Path(tar.name))
                print(f"in the cluster, {len(sent)} layers sent, {time.monotonic() - start:.1f} s")
    except (BuildError, ClusterError) as error:
        sys.exit(f"image: {error}")


if __name__ == "__main__":
    main()
