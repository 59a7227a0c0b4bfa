"""Compiled programs that several processes share: jax's cache on disk, whose entries appear whole.

jax writes an entry in place, so that another process can read half of it. The lock against that comes with a limit of
the size, and to keep the limit jax reads the times of all entries whenever it writes one.
"""

import importlib.abc
import importlib.machinery
import os
import sys
import threading

MODULE = "jax._src.lru_cache"


def put(self, key, value):
    """In place of LRUCache.put: write beside the entry, then rename."""
    entry = self.path / f"{key}-cache"
    if not entry.exists():
        beside = self.path / f"{os.getpid()}-{threading.get_ident()}.part"
        beside.write_bytes(value)
        beside.replace(entry)


class Finder(importlib.abc.MetaPathFinder):
    """Replaces `put` when jax is imported, and not before: many processes do without jax."""

    def find_spec(self, name, path, target=None):
        if name != MODULE:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            module.LRUCache.put = put

        spec.loader.exec_module = exec_module
        return spec


def install():
    if MODULE in sys.modules:
        sys.modules[MODULE].LRUCache.put = put
    else:
        sys.meta_path.insert(0, Finder())
