"""Files as hospitals have them, and the study that they are for. Private cells hold MARK, which nobody may print."""

import datetime
import io
import zipfile
from xml.sax.saxutils import escape

import numpy as np
import pyarrow
import pyarrow.parquet

MARK = "Mustermann"  # in cells that no output may show
ODD = "31415.92"  # a number that no output may show

STUDY = """
format = 1
name = "awkward"
task = "classification"

[target]
name = "ill"
classes = ["no", "yes"]

[table]
missing_words = ["k.A."]

[[table.column]]
name = "age"
kind = "number"
range = [0, 120]
names = ["Alter"]

[[table.column]]
name = "bmi"
kind = "number"
range = [10, 70]
outside = "clip"
names = ["BMI_kg_m2"]

[[table.column]]
name = "income"
kind = "number"
range = [1, 900000]
outside = "missing"

[[table.column]]
name = "smoker"
kind = "yes_no"
aliases = { yes = ["raucht"] }

[[table.column]]
name = "pain"
kind = "category"
values = ["none", "mild", "Größe"]
aliases = { mild = ["light"] }

[[table.column]]
name = "seen"
kind = "date"
range = ["2000-01-01", "2020-12-31"]
outside = "missing"

[method]
name = "spectral"
max_bytes = 4_000
features = { name = "identity", dimension = 14 }
"""


def make_rows(count=24):
    draws = np.random.default_rng(0)
    return [
        {
            "name": f"{MARK} {number}",
            "age": str(draws.integers(20, 100)),
            "bmi": f"{draws.uniform(18, 40):.1f}",
            "income": f"{draws.integers(1000, 9000)}",
            "smoker": ("yes", "no")[draws.integers(2)],
            "pain": ("none", "mild", "Größe")[draws.integers(3)],
            "seen": (datetime.date(2001, 1, 1) + datetime.timedelta(int(draws.integers(7000)))).isoformat(),
            "ill": ("no", "yes")[number % 2],
        }
        for number in range(count)
    ]


def set_cells(column, value, every=1):
    """All rows, or every so-many-th, with this cell, or with this function of the cell."""
    rows = make_rows()
    for row in rows[::every]:
        row[column] = value(row[column]) if callable(value) else value
    return rows


def to_csv(rows, mark=",", end="\n"):
    lines = [mark.join(rows[0]), *(mark.join(row.values()) for row in rows)]
    return end.join(lines) + end


def german(rows):
    """Decimal commas, points between thousands, semicolons."""
    changed = [
        {**row, "bmi": row["bmi"].replace(".", ","), "income": f"{int(row['income']):,}".replace(",", ".")}
        for row in rows
    ]
    return to_csv(changed, ";")


def to_parquet(rows):
    typed = {
        "name": [row["name"] for row in rows],
        "age": [int(row["age"]) for row in rows],
        "bmi": [float(row["bmi"]) for row in rows],
        "income": pyarrow.array([float(row["income"]) for row in rows], pyarrow.float32()),
        "smoker": [row["smoker"] == "yes" for row in rows],
        "pain": pyarrow.array([row["pain"] for row in rows]).dictionary_encode(),
        "seen": pyarrow.array([datetime.datetime.fromisoformat(row["seen"]) for row in rows], pyarrow.timestamp("ns")),
        "ill": [row["ill"] for row in rows],
        "series": [[1.0, 2.0] for _ in rows],
    }
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(typed), buffer)
    return buffer.getvalue()


def to_excel(rows, sheets=("patients",)):
    """A workbook of plain cells, without a program that writes one: numbers as numbers, dates as text."""
    kinds = "application/vnd.openxmlformats-officedocument.spreadsheetml"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    package = "http://schemas.openxmlformats.org/package/2006"
    lines = [list(rows[0]), *(list(row.values()) for row in rows)]
    table = "".join(f"<row>{''.join(map(_excel_cell, line))}</row>" for line in lines)
    numbers = range(1, len(sheets) + 1)
    files = {
        "[Content_Types].xml": f'<Types xmlns="{package}/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Override PartName="/xl/workbook.xml" ContentType="{kinds}.sheet.main+xml"/>'
        + "".join(f'<Override PartName="/xl/sheet{n}.xml" ContentType="{kinds}.worksheet+xml"/>' for n in numbers)
        + "</Types>",
        "_rels/.rels": f'<Relationships xmlns="{package}/relationships">'
        f'<Relationship Id="r1" Type="{office}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{main}" xmlns:r="{office}"><sheets>'
        + "".join(f'<sheet name="{name}" sheetId="{n}" r:id="r{n}"/>' for n, name in zip(numbers, sheets, strict=True))
        + "</sheets></workbook>",
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{package}/relationships">'
        + "".join(f'<Relationship Id="r{n}" Type="{office}/worksheet" Target="sheet{n}.xml"/>' for n in numbers)
        + "</Relationships>",
        **{
            f"xl/sheet{n}.xml": f'<worksheet xmlns="{main}"><sheetData>{table}</sheetData></worksheet>' for n in numbers
        },
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, f'<?xml version="1.0" encoding="UTF-8"?>{text}')
    return buffer.getvalue()


def _excel_cell(text):
    try:
        return f"<c><v>{float(text)}</v></c>"
    except ValueError:
        return f'<c t="inlineStr"><is><t>{escape(text)}</t></is></c>'
