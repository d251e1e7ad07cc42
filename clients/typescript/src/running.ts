/** The address of the deployment: given, in the environment, or that of the `combee up` that runs on this machine. */

import { type Stats, existsSync, readFileSync, readdirSync, realpathSync, statSync } from "node:fs";
import { homedir } from "node:os";
import { basename, dirname, isAbsolute, join } from "node:path";
import { type Log, reasonOf } from "./connection.js";

type Environment = Record<string, string | undefined>;

interface Running {
  prefix: string;
  http: string;
  isUp: boolean;
  named: string;
}

const UP = "combee up";
const LOCKS = "/proc/locks";
const REMEDY = "give Combee the gateway's address ('http://…'), or set COMBEE_GATEWAY_URL";

/** Return the given address, else the environment's, else that of the only `combee up` here; throws otherwise. */
export function addressOf(url: string | undefined, environment: Environment, log: Log): string {
  const address = url || environment.COMBEE_GATEWAY_URL;
  if (address) return address;
  if (environment.COMBEE_BOOTSTRAP_SERVERS) {
    throw new Error(`combee: COMBEE_BOOTSTRAP_SERVERS is Kafka's address, and this client speaks HTTP: ${REMEDY}`);
  }
  const prefix = environment.COMBEE_TOPIC_PREFIX;
  const found = running(environment).filter((one) => !prefix || one.prefix === prefix);
  const [chosen] = found;
  if (chosen === undefined) {
    throw new Error(`combee: no deployment is configured, and no '${UP}' runs on this machine: ${REMEDY}`);
  }
  if (found.length > 1) {
    const names = found.map((one) => one.named).join("; ");
    throw new Error(
      `combee: ${found.length} deployments run on this machine: ${names}; name one with COMBEE_DATA_DIR, or ${REMEDY}`,
    );
  }
  if (!chosen.isUp) throw new Error(`combee: ${chosen.named} is not up yet: try again when it says so, or ${REMEDY}`);
  if (!chosen.http) throw new Error(`combee: ${chosen.named} serves no HTTP: ${REMEDY}`);
  log(`combee: no address was given: using ${chosen.named}`);
  return chosen.http;
}

/** Return the given key, else the environment's, also from a file that it names. */
export function keyOf(given: string | undefined, environment: Environment): string | undefined {
  const file = environment.COMBEE_GATEWAY_KEY_FILE;
  return given || environment.COMBEE_GATEWAY_KEY || (file ? readFileSync(file, "utf8").trim() : undefined);
}

/** Return the deployments in the data directory that the environment names, else all of this user. */
function running(environment: Environment): Running[] {
  const folder = environment.COMBEE_DATA_DIR;
  const user = userDataDir(environment);
  const files = folder
    ? filesIn(folder, "stack-")
    : [...filesIn(user, "stack-"), ...filesIn(user, "elsewhere-").flatMap(target)];
  return [...new Set(files)].sort().flatMap((path) => described(path));
}

function userDataDir(environment: Environment): string {
  const given = environment.XDG_DATA_HOME ?? "";
  if (isAbsolute(given)) return join(given, "combee");
  const home = environment.HOME || homedir();
  return join(home, process.platform === "darwin" ? "Library/Application Support" : ".local/share", "combee");
}

function filesIn(folder: string, start: string): string[] {
  if (!existsSync(folder)) return [];
  return readdirSync(folder)
    .filter((name) => name.startsWith(start) && name.endsWith(".json"))
    .map((name) => join(folder, name));
}

/** Return where a link leads; nothing for one whose target is gone. */
function target(link: string): string[] {
  return existsSync(link) ? [realpathSync(link)] : [];
}

/** Return what a stack's file says of a `combee up` that runs; nothing for one that has ended, or of somebody else. */
function described(path: string): Running[] {
  try {
    if (!isTrusted(statSync(path))) return [];
    const state = JSON.parse(readFileSync(path, "utf8"));
    if (state.command !== UP || !isHeld(path.replace(/\.json$/, ".lock"), Number(state.pid))) return [];
    const [prefix = ""] = basename(path, ".json").replace(/^stack-/, "").split("@");
    const [http, isUp] = [String(state.http ?? ""), "http" in state];
    const where = isUp ? http || state.bootstrap_servers : "still starting";
    const named = `${UP} (process ${state.pid}, ${where}, data in ${dirname(path)}, prefix ${prefix})`;
    return [{ prefix, http, isUp, named }];
  } catch (error) {
    if (error instanceof SyntaxError || reasonOf(error).startsWith("ENOENT")) return [];
    throw error;
  }
}

/** Return whether only this user or root can have written a file. */
function isTrusted(info: Stats): boolean {
  return [process.geteuid?.(), 0].includes(info.uid) && (info.mode & 0o022) === 0;
}

/** Return whether a command holds a lock: Linux lists all locks; elsewhere its process is looked for. */
function isHeld(lock: string, pid: number): boolean {
  if (existsSync(LOCKS)) {
    const inode = statSync(lock).ino;
    return readFileSync(LOCKS, "utf8")
      .split("\n")
      .some((line) => line.includes("FLOCK") && line.includes("WRITE") && line.includes(`:${inode} `));
  }
  try {
    return pid > 0 && process.kill(pid, 0);
  } catch {
    return false;
  }
}
