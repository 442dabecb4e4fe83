"""Real answers beside their description."""

import json
import re

import jsonschema_rs

_PLACE = "#/components/schemas/"


def inlined(description, schema, closed=False):
    """A schema with all that it refers to. ``closed``: a field that it does not have is wrong."""
    definitions = {
        name: dict(entry) for name, entry in description["components"]["schemas"].items()
    }
    if closed:
        for name in closed_schemas(description):
            definitions[name]["additionalProperties"] = False
    text = json.dumps(schema | {"$defs": definitions}).replace(_PLACE, "#/$defs/")
    return json.loads(text)


def closed_schemas(description):
    """The names of the schemas of answers: all but those of requests and problems, and of events,
    whose fields depend on their kind."""
    answers = {"RunEvent", "ReleasedTaskState"}
    pending = [
        response.get("content", {})
        for methods in description["paths"].values()
        for operation in methods.values()
        for code, response in operation["responses"].items()
        if code.startswith("2")
    ]
    names = set()
    while pending:
        fresh = set(re.findall(f'"{_PLACE}(\\w+)"', json.dumps(pending))) - names
        names |= fresh
        pending = [description["components"]["schemas"][name] for name in fresh]
    return names - answers


def content_of(description, method, path, status):
    """The declared content of an answer; ``path``: as requested."""
    plain = path.partition("?")[0]
    matching = [
        (template.count("{"), methods[method.lower()])
        for template, methods in description["paths"].items()
        if method.lower() in methods and re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), plain)
    ]
    assert matching, f"{method} {path} is not described"
    responses = min(matching, key=lambda entry: entry[0])[1]["responses"]
    assert str(status) in responses, f"{method} {path}: {status} is not described"
    return responses[str(status)].get("content", {})


def differences(description, method, path, status, media, text):
    """What a real answer has that its description does not, or lacks."""
    content = content_of(description, method, path, status)
    if not text:
        return [] if not content else [f"{method} {path}: empty"]
    declared = content[media]
    if "x-line" in declared:
        schema, answers = declared["x-line"], text.splitlines()
    elif "x-data" in declared:
        schema, answers = declared["x-data"], re.findall("^data: (.*)", text, re.MULTILINE)
    else:
        schema, answers = declared["schema"], [text]
    check = jsonschema_rs.validator_for(inlined(description, schema, closed=True))
    return [
        f"{method} {path}: {'/'.join(map(str, error.instance_path))}: {error.message[-300:]}"
        for answer in answers
        for error in check.iter_errors(json.loads(answer))
    ]
