"""Pages as one HTML file: no network, no other files, light and dark, paper and phone."""

import base64
import json
import re
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape


def render(template: str, **content: Any) -> str:
    """A page from one of the templates of this folder."""
    environment = Environment(
        loader=PackageLoader("bayesattn.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters |= {
        "linked": linked,
        "readable": readable,
        "stem": lambda at: Path(at).stem,
    }
    return environment.get_template(template).render(**content)


def data_uri(path: Path) -> str:
    """An SVG as an address that holds the whole file."""
    return f"data:image/svg+xml;base64,{base64.b64encode(path.read_bytes()).decode('ascii')}"


def embedded(name: str, exhibit: Any, data: Any) -> dict[str, str]:
    """An exhibit for a template, with its data inside the page."""
    words = {part: getattr(exhibit, part) for part in ("kind", "title", "caption")}
    return {"id": name, **words, "data": script_data(data)}


def script_data(data: Any) -> Markup:
    """JSON for a script element: no "</script>" may come up inside."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c"))


def linked(text: str) -> Markup:
    """Each arXiv number becomes a link."""
    link = r'<a href="https://arxiv.org/abs/\1\2">arXiv \1\2</a>'
    return Markup(re.sub(r"arXiv (\d{4}\.\d{5})(v\d+)?", link, str(escape(text))))


def readable(value: object) -> str:
    """A setting or a list of numbers as text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
