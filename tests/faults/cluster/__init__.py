"""Several engines on one lane, and what can happen to them: processes, connections, servers and clocks in trouble.

Each module with a `main` is a command of `make faults`. The others are its parts: `worker` is the process that runs
schedules, `nursery` starts such processes, `cluster` is one database with its workers, `plan` says what they have to
run, `checker` compares what they ran with that.
"""
