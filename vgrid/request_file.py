"""A request from a file: YAML or JSON, or the text form."""

from __future__ import annotations

from pathlib import Path

from vgrads.kernel.documents import load_mapping
from vgrads.kernel.files import read_text
from vgrads.vgrid.request import GridRequest, parse_request_document
from vgrads.vgrid.request_text import parse_request


def load_request(path: Path) -> GridRequest:
    """Load the request from a YAML or JSON file, or in text form (any other extension); InputError
    names the location."""
    if path.suffix.lower() in (".yaml", ".yml", ".json"):
        return parse_request_document(load_mapping(path), str(path))
    return parse_request(read_text(path), str(path))
