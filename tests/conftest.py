"""No test asks a provider of embeddings on the network, whatever keys the machine holds."""

import os

for name in [n for n in os.environ if n.startswith("OMNIGRAPH_EMBED")]:
    del os.environ[name]
os.environ["OMNIGRAPH_EMBED_PROVIDER"] = "none"
