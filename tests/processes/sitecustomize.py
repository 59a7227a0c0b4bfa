"""Every Python process that tests start loads this file: its folder is in their PYTHONPATH."""

import whole_entries

whole_entries.install()
