"""What texts and headers look like: dates, identifiers, numbers. A study is public, so doubt means "leave it out"."""

from __future__ import annotations

import math
import re

MAX_READ = 64  # characters of a cell that are looked at; a date or an identifier is shorter

_TIME = r"\d{1,2}:\d{2}(?::\d{2})?(?:[.,]\d+)?(?:\ ?[ap]\.?m\.?)?(?:\ ?(?:z|[+-]\d{2}:?\d{2}))?"
_YEAR = r"(?:1[6-9]|20|21)\d{2}"
_MONTH = (
    r"(?:jan(?:uary?|uari|vier)?|feb(?:ruary?|ruari)?|mar(?:ch|s)?|märz|mrz|apr(?:il)?|may|mai|mei|june?|juni|juin"
    r"|july?|juli|juillet|aug(?:ust)?|août|sept?(?:ember|embre)?|o[ck]t(?:ober|obre)?|nov(?:ember|embre)?"
    r"|de[cz](?:ember)?|déc(?:embre)?)\.?"
)
_DATE = re.compile(
    rf"""(?:
    {_YEAR}[-/]\d{{1,2}}                         # 2020-03
    | {_YEAR}[-/. ]\d{{1,2}}[-/. ]\d{{1,2}}      # 2020-03-31
    | \d{{1,2}}[-/.]\ ?\d{{1,2}}[-/.]\ ?(?:\d{{4}}|\d{{2}})  # 31.03.2020, 3/31/20
    | {_YEAR}(?:0[1-9]|1[0-2])(?:(?:[0-2]\d|3[01])(?:\d{{4}}|\d{{6}})?)?  # 20200331, with a time or not, 202003
    | (?:\d{{1,2}}[-\ ./]*)?{_MONTH}[-\ ./,]*(?:\d{{1,2}},?[-\ ./]+)?(?:\d{{4}}|\d{{2}})  # 31 March 2020, March 2020
    )(?:[t\ ,]+{_TIME})? | {_TIME}""",
    re.VERBOSE | re.IGNORECASE,
)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_IDENTIFIER = re.compile(
    r""".*\d{5}.*                      # five digits in a row that are not a number
    | .*@.*                            # an address
    | [0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}.*  # a UUID
    | (?:\D*\d){8,}.*                  # eight digits, in groups: telephone, insurance""",
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
_CODE = re.compile(r"[^\W\d]{1,8}[-_/ .]?\d{3,}[-_/ .\w]{0,8}")  # P9000001, MRN-0042


def _words(header: str) -> list[str]:
    """patientID, patient_id and "Patient ID" are the words patient and id."""
    parted = re.sub(r"(?<=[^\W\d_A-Z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][^\W\d_A-Z])", " ", header)
    return re.findall(r"[^\W\d_]+", parted.lower())


_IDENTIFIER_WORDS = frozenset(
    _words("""
    id ids identifier ident uid uuid guid nr mrn ssn nhs pid pin iban passport barcode pseudonym initials initialen
    name names surname forename firstname lastname fullname username vorname nachname nom prenom prénom apellido
    patientid patid subjectid personid caseid recordid rowid visitid encounterid userid clientid sampleid studyid
    memberid patnr patientnr fallnr fallnummer patientennummer versichertennummer email mail phone telephone telefon
    tel mobile address adresse street strasse straße zip zipcode postcode postal plz unnamed
    """)
)
_NUMBERED = frozenset(_words("patient pat subject person case record row visit hospital member insurance"))
_DATE_WORDS = frozenset(
    _words("date dates datum datetime timestamp dob birthdate birthday dateofbirth geburtsdatum gebdat fecha")
)


def as_number(text: str) -> float:
    """NaN for a text that is not a finite number."""
    if not _NUMBER.fullmatch(text):
        return math.nan
    value = float(text)
    return value if math.isfinite(value) else math.nan


def looks_like_date(text: str) -> bool:
    return len(text) <= MAX_READ and _DATE.fullmatch(text) is not None


def looks_like_identifier(text: str) -> bool:
    """Of a text that is not a number."""
    return _IDENTIFIER.match(text[:MAX_READ]) is not None


def looks_like_code(text: str) -> bool:
    """Letters and at least three digits: a diagnosis, or a patient; how many there are of it tells which."""
    return len(text) <= MAX_READ and _CODE.fullmatch(text) is not None


def is_identifier_name(header: str) -> bool:
    words = _words(header)
    is_numbered = len(words) > 1 and words[-1] in ("no", "number", "num", "nummer") and bool(_NUMBERED & set(words))
    return is_numbered or not _IDENTIFIER_WORDS.isdisjoint(words)


def is_date_name(header: str) -> bool:
    return not _DATE_WORDS.isdisjoint(_words(header))
