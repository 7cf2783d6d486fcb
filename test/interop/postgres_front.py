#!/usr/bin/python3
"""postgres_front.py PORT TABLE: stores what a forward sink sends in a table of a PostgreSQL
database, each row once.

Needs Python, psql and nothing else. Connects as psql does (PGHOST, PGUSER, PGDATABASE ...).
The table has the columns that the sink exports; the ledger is made beforehand:

    CREATE TABLE received_position (
        sink text, epoch text, dataset text, source text, destination text, until numeric NOT NULL,
        PRIMARY KEY (sink, epoch, dataset, source, destination));
"""

import re
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# Rows and position in one transaction; nothing for a batch at or below the position. Two
# requests of one delivery wait for each other at the row of received_position. In JSON there
# are no control characters: CSV with those as quote and delimiter leaves each line as it is.
BEFORE = r"""
\set VERBOSITY sqlstate
BEGIN;
CREATE TEMPORARY TABLE batch (line jsonb) ON COMMIT DROP;
COPY batch FROM STDIN (FORMAT csv, QUOTE E'\x01', DELIMITER E'\x02');
"""
AFTER = r"""\.
WITH moved AS (
    INSERT INTO received_position
    VALUES (:'sink', :'epoch', :'dataset', :'source', :'destination', :'until')
    ON CONFLICT (sink, epoch, dataset, source, destination) DO UPDATE
        SET until = excluded.until WHERE received_position.until < excluded.until
    RETURNING 1
)
INSERT INTO :table
SELECT r.* FROM moved, batch, jsonb_populate_record(CAST(NULL AS :table), line) AS r;
COMMIT;
"""


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        size = int(self.headers["Content-Length"])
        body = self.rfile.read(size)
        if len(body) < size:
            return  # the connection broke: half a batch is none
        command = ["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-v", "table=" + sys.argv[2]]
        for name in ("Sink", "Epoch", "Dataset", "Source", "Destination", "Until"):
            command += ["-v", name.lower() + "=" + self.headers.get("Incsink-" + name, "")]
        done = subprocess.run(command, input=BEFORE.encode() + body + AFTER.encode(), capture_output=True)
        if done.returncode == 0:
            self.answer(200)  # durable now
        elif re.search(rb"ERROR:  2[23]", done.stderr):
            self.answer(422, done.stderr)  # a value or a constraint: the same batch would fail again
        else:
            self.answer(503, done.stderr)

    def answer(self, status, text=b""):
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Receiver).serve_forever()
