"""Views of a queue: which of its jobs a history shows at an instant.

A history that lists the jobs that wait and run is the *full* view. Most are not: accounting has a
record when a job has *ended*, some also when it has *started*. A forecast that was learned with
jobs that a question cannot see takes every queue for an empty one, so each view is learned with
what it would have shown at each instant of the past. Names alone: a service starts with them.
"""

FULL, STARTED, ENDED = "full", "started", "ended"
VIEWS = {
    FULL: "all jobs from their submission on",
    STARTED: "jobs from their start on, not those that wait",
    ENDED: "jobs that have ended",
}
"""Name of a view → what it shows."""
BEST = "best"
"""Stands for the view that a history permits at the instant of a question
(:func:`vgrads.qbets.viewed_log.choose_view_at`)."""
