"""Which waiting job starts, which waits and why, which running job makes room: functions from values to values."""
