#!/usr/bin/env node
// Stands for the `midfill` command: hands everything on, and writes down what language server and editor say.

import { spawn } from "node:child_process";
import { appendFileSync } from "node:fs";
import * as path from "node:path";

const args = process.argv.slice(2);
const command = process.env.E2E_MIDFILL;
if (args[0] !== "lsp") {
  spawn(command, args, { stdio: "inherit" }).on("exit", (code) => process.exit(code ?? 1));
} else {
  const server = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
  const record = path.join(process.env.E2E_WIRE, `${process.pid}.jsonl`);
  write({ from: "tap", message: { pid: server.pid } });
  process.stdin.on("data", reader("client")).pipe(server.stdin);
  server.stdout.on("data", reader("server")).pipe(process.stdout);
  server.stdin.on("error", () => undefined); // it may have been killed
  server.on("exit", (code) => process.exit(code ?? 1));

  function write(entry) {
    appendFileSync(record, JSON.stringify({ at: Date.now(), ...entry }) + "\n");
  }

  /** Cuts a stream of bytes into LSP's messages. */
  function reader(from) {
    let rest = Buffer.alloc(0);
    return (bytes) => {
      rest = Buffer.concat([rest, bytes]);
      for (;;) {
        const start = rest.indexOf("\r\n\r\n") + 4;
        const length = /Content-Length: (\d+)/i.exec(rest.subarray(0, Math.max(start, 0)).toString())?.[1];
        if (length === undefined || rest.length < start + Number(length)) {
          return;
        }
        write({ from, message: JSON.parse(rest.subarray(start, start + Number(length)).toString()) });
        rest = rest.subarray(start + Number(length));
      }
    };
  }
}
