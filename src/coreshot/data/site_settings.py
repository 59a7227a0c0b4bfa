"""How one site's file is written: its own small settings, which never leave the site and are no part of the study."""

from __future__ import annotations

import codecs
import dataclasses
import tomllib
from pathlib import Path
from typing import Any, Literal

from coreshot.config import decode, settings
from coreshot.data.columns import is_date_format
from coreshot.errors import CoreshotError

DELIMITERS = {",": "','", ";": "';'", "\t": "tabs", "|": "'|'"}
DELIMITER_NAMES = {"comma": ",", "semicolon": ";", "tab": "\t", "\\t": "\t", "pipe": "|"}


@settings
class SiteSettings:
    """Everything that is None is detected."""

    delimiter: str | None = None
    decimal: Literal[".", ","] | None = None
    thousands: Literal["", ".", ",", " ", "'"] | None = None
    encoding: str | None = None
    sheet: str | None = None  # of a workbook
    date_format: str | None = None  # such as "%d.%m.%Y"
    columns: dict[str, str] | None = None  # the file's name of a column = the study's
    allow: tuple[str, ...] = ()  # columns that may be mostly missing, outside or unreadable

    def __post_init__(self) -> None:
        if self.delimiter is not None and self.delimiter not in DELIMITERS and self.delimiter not in DELIMITER_NAMES:
            raise CoreshotError(
                f"delimiter {self.delimiter!r}: cells are separated by one of , ; | or tab; give one of these."
            )
        if self.date_format is not None and not is_date_format(self.date_format):
            raise CoreshotError(
                f'date_format {self.date_format!r}: is no format of dates; write, for example, "%d.%m.%Y".'
            )
        if self.encoding is not None:
            try:
                codecs.lookup(self.encoding)
            except LookupError:
                raise CoreshotError(
                    f"encoding {self.encoding!r}: there is no such encoding; give utf-8, utf-16 or cp1252, for example."
                ) from None

    @property
    def mark(self) -> str | None:
        """The delimiter as it is in the file."""
        return None if self.delimiter is None else DELIMITER_NAMES.get(self.delimiter, self.delimiter)


DETECT = SiteSettings()


def read_site_settings(path: Path | None, **options: Any) -> SiteSettings:
    """The settings of a TOML file; options that are given go before what it says."""
    values: dict[str, Any] = {}
    if path is not None:
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise CoreshotError(
                f"--site-settings {path}: cannot be read ({error.strerror}); give a TOML file with, for example, "
                'delimiter = ";".'
            ) from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise CoreshotError(f"--site-settings {path}: not valid TOML ({error}); mend that line.") from None
    given = decode(SiteSettings, values, f"--site-settings {path}")
    allow = (*given.allow, *options.pop("allow", ()))
    said = {key: value for key, value in options.items() if value is not None}
    whole = {**dataclasses.asdict(given), **said, "allow": allow}
    return decode(SiteSettings, whole, "distill")
