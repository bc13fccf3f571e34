"""Texts to vectors: the providers, their settings, and what protects a graph from a provider that misbehaves.

A leaf room: it knows neither graphs nor schemas. Vectors leave it as float32, of length one, checked.
"""

from __future__ import annotations

from omnigraph.embed.embedder import Embedder, TextRefused, embedder
from omnigraph.embed.settings import EmbedSettings, Secret, how_to_set_up

__all__ = ["EmbedSettings", "Embedder", "Secret", "TextRefused", "embedder", "how_to_set_up"]
