"""Maintenance: what keeps a graph fast and shows that it is sound. Changes no row."""

from omnigraph.maintain.cleanup import cleanup
from omnigraph.maintain.indices import ensure_indices
from omnigraph.maintain.optimize import optimize
from omnigraph.maintain.verify import VerifyReport, verify

__all__ = ["VerifyReport", "cleanup", "ensure_indices", "optimize", "verify"]
