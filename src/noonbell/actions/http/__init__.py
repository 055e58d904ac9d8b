"""The `http` action: a request that is sent when its schedule is due.

    {"kind": "http", "method": "POST", "url": "https://example.com/jobs/nightly",
     "headers": {"X-Key": "${secrets.KEY}"}, "body": {"json": {"full": true}}}

    definition    what may be written, and how it is checked
    request       the request of one attempt: secrets filled in, headers of the run, signature
    expectation   whether an answer is a success
    json_path     the paths into JSON that an expectation may use
    retry_after   when an answer asks to be tried again
    record        what is kept of an attempt, without secrets
    slots         how many requests are under way at once, and whose turn is next
    jobs          all of it together: from a start to its end

Nothing is imported here, so that checking a definition does not load what sending needs.
"""
