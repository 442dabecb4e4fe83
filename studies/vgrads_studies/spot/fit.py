"""Write the life tables of recorded traces as the prior of spot nodes: ``python -m
vgrads_studies.spot.fit FOLDER``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from vgrads.kernel.files import write_text
from vgrads_studies.spot.traces import read_traces


def main(folder: Path, target: Path) -> None:
    """Write one table for each trace of a folder."""
    tables = [trace.table for trace in read_traces(folder)]
    rows = [
        json.dumps(
            {
                "date": t.origin[0],
                "zone": t.origin[1],
                "ended": t.ended.tolist(),
                "at_risk": t.at_risk.round(1).tolist(),
            }
        )
        for t in tables
    ]
    write_text(target, "[\n" + ",\n".join(rows) + "\n]\n")


if __name__ == "__main__":
    from vgrads.pool.spot import prior

    main(Path(sys.argv[1]), prior.PRIOR_FILE)
