"""CSV with a header: one line a record, as a parquet table of the same columns would be read."""

from __future__ import annotations

from collections.abc import Iterator

from coreshot.data.readers.parquet import read_table
from coreshot.data.readers.protocol import Batch, SourceFile
from coreshot.errors import CoreshotError


def read_csv(file: SourceFile) -> Iterator[Batch]:
    import pyarrow as arrow
    import pyarrow.csv

    try:
        with pyarrow.csv.open_csv(file.path) as table:
            wanted = table.schema

            def read_columns(names: list[str]) -> Iterator[arrow.RecordBatch]:
                return (part.select(names) for part in table if part.num_rows)

            yield from read_table(file, wanted, read_columns)
    except (arrow.ArrowException, OSError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise CoreshotError(
            f"{file.name}: not a readable CSV file ({reason}); commas lie between cells, a header comes first."
        ) from None
