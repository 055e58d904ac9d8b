// One graphile-worker with batching on, and so many jobs of an empty task that become due with one commit.
//
//     node trial.cjs FOLDER CONNECTION JOBS
//
// FOLDER holds the installed packages. The settings are those of the benchmark in the worker's own documentation. The
// worker waits, idle, when the jobs come, and is notified of them. The time counts from that commit until every job has
// been called and its completion is committed, which deletes it. Ends with one line of JSON.
"use strict";

const { createRequire } = require("node:module");

const [folder, connectionString, given] = process.argv.slice(2);
const jobs = Number(given);
const installed = createRequire(`${folder}/package.json`);
const { Logger, makeWorkerUtils, run } = installed("graphile-worker");
const { Client } = installed("pg");

const ADD = `
  SELECT count(*) FROM graphile_worker.add_jobs(ARRAY(
    SELECT ROW('empty', '{}', NULL, NULL, NULL, NULL, NULL, NULL)::graphile_worker.job_spec
    FROM generate_series(1, $1::int)
  ))`;
const LEFT = "SELECT EXISTS (SELECT 1 FROM graphile_worker._private_jobs) AS left";

const preset = {
  worker: {
    connectionString,
    concurrentJobs: 24,
    maxPoolSize: 25,
    localQueue: { size: 500 },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
    logger: new Logger(() => (level, message) => {
      if (level === "error") console.error(message);
    }),
  },
};

async function main() {
  const utils = await makeWorkerUtils({ preset });
  await utils.migrate();
  await utils.release();
  let called = 0;
  let finish;
  const finished = new Promise((resolve) => (finish = resolve));
  const empty = () => {
    called += 1;
    if (called === jobs) finish();
  };
  const runner = await run({ preset, taskList: { empty }, noHandleSignals: true });
  const client = new Client({ connectionString });
  await client.connect();
  await client.query("BEGIN");
  await client.query(ADD, [jobs]);
  const began = process.hrtime.bigint();
  const cpu = process.cpuUsage();
  await client.query("COMMIT");
  await finished;
  while ((await client.query(LEFT)).rows[0].left) await new Promise((resolve) => setTimeout(resolve, 2));
  const seconds = Number(process.hrtime.bigint() - began) / 1e9;
  const spent = process.cpuUsage(cpu);
  await client.end();
  await runner.stop();
  console.log(JSON.stringify({ jobs: called, seconds, cpu_us: (spent.user + spent.system) / jobs }));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
