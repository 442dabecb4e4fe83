"""Rules of alarms for all sets of an owner that state none."""

from __future__ import annotations

import json
from collections.abc import Sequence

from sqlalchemy import Engine as SqlEngine
from sqlmodel import Session

from vgrads.portal.records.tables import AlarmRulesRow
from vgrads.workflows.alarm_rules import AlarmRule, AlarmRulesDocument, written_rules


class OwnerRules:
    """Rules in the database, by owner."""

    def __init__(self, engine: SqlEngine) -> None:
        self._engine = engine

    def find(self, owner: str) -> tuple[AlarmRule, ...] | None:
        """Return an owner's rules; None where there are none of its own."""
        with Session(self._engine) as session:
            row = session.get(AlarmRulesRow, owner)
            if row is None:
                return None
            return AlarmRulesDocument.model_validate({"alarms": json.loads(row.rules)}).rules

    def store(self, owner: str, rules: Sequence[AlarmRule] | None) -> None:
        """Store an owner's rules, for runs that begin from now on; None: the usual ones again."""
        with Session(self._engine) as session:
            row = session.get(AlarmRulesRow, owner)
            if rules is None:
                if row is not None:
                    session.delete(row)
            else:
                row = row or AlarmRulesRow(owner=owner, rules="")
                row.rules = json.dumps(written_rules(rules))
                session.add(row)
            session.commit()
