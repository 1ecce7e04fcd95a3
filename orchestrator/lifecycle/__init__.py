"""The life of a job: its states, the reconciler and what the reconciler needs from the outside world."""
