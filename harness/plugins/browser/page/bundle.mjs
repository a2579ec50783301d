// Make the calls of the bundle that this page lies in, and leave a trace of them.
import { Driver, describe } from "./driver.mjs";
import { Npz, NpzWriter } from "./npz.mjs";

const FORMAT = 1;
const CPU = "CPUExecutionProvider";
const LOG = 1 << 15; // characters of a log
const LONG = 500; // characters of an error that is shown
const base = new URL("..", import.meta.url).href;
const driver = new Driver(base);
const shown = (id) => document.getElementById(id);

// An error whose text is a sentence for whoever opened the page.
class Refusal extends Error {}

function refuse(words) {
  throw new Refusal(words);
}

async function say(words, done = 0, all = 1) {
  shown("state").textContent = words;
  shown("progress").max = all;
  shown("progress").value = done;
  await new Promise((resolve) => setTimeout(resolve)); // the browser draws it
}

async function load(name) {
  const answer = await fetch(base + name).catch(() => null);
  if (!answer?.ok) {
    const why = answer ? `answers ${answer.status}` : "does not answer";
    refuse(`The server ${why} for ${name}; look whether serve.py runs in the whole bundle.`);
  }
  return answer.blob();
}

async function loadJson(name) {
  try {
    return JSON.parse(await (await load(name)).text());
  } catch (error) {
    if (error instanceof Refusal) throw error;
    return refuse(`${name} is damaged; copy the bundle again.`);
  }
}

async function checkFiles(files) {
  const names = Object.keys(files);
  for (const [at, name] of names.entries()) {
    await say(`Reading ${name}.`, at, names.length);
    const bytes = await (await load(name)).arrayBuffer();
    const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
    const text = [...digest].map((one) => one.toString(16).padStart(2, "0")).join("");
    if (text !== files[name]) refuse(`${name} is not the file of this bundle; copy it again.`);
  }
}

// What the browser lacks of what the bundle asks for.
function checkBrowser(told, { device, threads }) {
  if (device === "webgpu" && !told.adapter) {
    refuse(
      "This browser has no WebGPU adapter; take a newer browser, or look in its settings " +
        "whether WebGPU is switched off.",
    );
  }
  if (threads !== 1 && !globalThis.crossOriginIsolated) {
    refuse(
      "WebAssembly has no threads on this page, and the bundle asks for them; serve it " +
        "with serve.py, which sends the headers that threads need.",
    );
  }
}

// The nodes that WebAssembly runs in place of WebGPU, and what the bundle allows.
class Placement {
  #nodes = 0;
  #fallen = new Map();

  add({ nodes, on_cpu }, exact, known, share) {
    if (!on_cpu && share < 1) {
      refuse("onnxruntime-web does not tell which nodes run in WebAssembly; take a newer browser.");
    }
    this.#nodes += nodes;
    for (const [name, op] of on_cpu ?? []) {
      // Shapes are computed there by design, and exactly. Such a Gather is not in the file.
      if (exact.has(name) || (op === "Gather" && !known.has(name))) continue;
      this.#fallen.set(op, (this.#fallen.get(op) ?? 0) + 1);
    }
  }

  check(share) {
    const fallen = [...this.#fallen.values()].reduce((sum, one) => sum + one, 0);
    if (fallen <= share * this.#nodes) return;
    const listed = [...this.#fallen].map(([op, count]) => `${count} ${op}`).join(", ");
    refuse(
      `WebGPU does not run all of the network in this browser: WebAssembly runs ${fallen} of ` +
        `${this.#nodes} nodes (${listed}); if that is right, allow it with cpu_nodes under ` +
        "[target.*], and make the bundle again.",
    );
  }
}

// Make the calls; return the values that were shown, and what the browser printed.
async function run(said, own) {
  const share = said.settings.cpu_nodes;
  const feeds = await opened("feeds.npz");
  const needed = new Set(said.calls.flatMap((call) => Object.values(call.feeds)));
  const kept = new Map(); // a later piece of the graph reads it
  const placed = new Map();
  const npz = new NpzWriter();
  const values = [];
  let log = "";
  for (const [number, call] of said.calls.entries()) {
    await say(`Call ${number + 1} of ${said.calls.length}.`, number, said.calls.length);
    const show = async (name, { dtype, shape, bytes }) => {
      const ref = `${number}/${name}`;
      if (needed.has(ref)) kept.set(ref, { dtype, shape, bytes: bytes.slice().buffer });
      if (!call.kind) return;
      const array = `v${values.length}`;
      const { kind, sample } = call;
      values.push({ kind, sample, name, array, shape, dtype, sketched: false });
      npz.add(array, { dtype, shape, bytes });
    };
    const given = {};
    for (const [name, ref] of Object.entries(call.feeds)) {
      given[name] = kept.get(ref) ?? (await feeds(ref));
    }
    const words = Object.fromEntries(
      Object.entries(call.said).map(([name, value]) => [
        name,
        typeof value === "string" ? value.replace(/^bundle:/, "") : value,
      ]),
    );
    if (call.do === "open") {
      const { folder, provider } = words;
      driver.files = Object.keys(said.files)
        .filter((name) => name.startsWith(`${folder}/`))
        .map((name) => name.slice(folder.length + 1));
      const told = await made(call, () => driver.open(given, show, words), number);
      log = `${log}${told.said}\n`.slice(0, LOG);
      if (provider === CPU) continue;
      // The pieces of a graph, whose layers are read, count together.
      const group = call.kind === "layers" ? `layers ${call.sample}` : number;
      if (!placed.has(group)) placed.set(group, new Placement());
      const { exact, known } = own.nodes[folder];
      placed.get(group).add(told, new Set(exact), new Set(known), share);
      if (call.kind !== "layers") placed.get(group).check(share);
    } else {
      await made(call, () => driver.run(given, show, words), number);
    }
  }
  for (const group of placed.values()) group.check(share);
  return { npz, values, log };
}

async function opened(name) {
  const damaged = (error) => refuse(`${name} cannot be read, because ${error.message}.`);
  const npz = await Npz.open(await load(name)).catch(damaged);
  return (key) => npz.read(key).catch(damaged);
}

async function made(call, make, number) {
  try {
    return await make();
  } catch (error) {
    if (error instanceof Refusal) throw error;
    const text = describe(error, driver).split("\n")[0].slice(0, LONG);
    return refuse(
      `onnxruntime-web ends the call ${number + 1}, which is ${call.do}, with an error: ${text}.`,
    );
  }
}

// The name of the device in ids, and the browser for the record.
function namesOf(told, device) {
  const agent = navigator.userAgent;
  const system =
    navigator.userAgentData?.platform ||
    /Android|iPhone|iPad|Windows|Mac|CrOS|Linux/.exec(agent)?.[0] ||
    "browser";
  const browser = /(?:Edg|Firefox|HeadlessChrome|Chrome|Version)\/[\d.]+/.exec(agent)?.[0] ?? agent;
  const adapter = told.adapter && `, adapter ${told.adapter}${told.software ? ", in software" : ""}`;
  return {
    name: `${system}-${device}`.toLowerCase().replace(/[^a-z0-9]+/g, "-"),
    machine: `${browser} on ${system}${adapter}`.slice(0, LONG),
  };
}

async function trace() {
  if (!globalThis.isSecureContext) {
    refuse("This address is neither localhost nor https, which WebGPU needs; README.md says how.");
  }
  navigator.wakeLock?.request("screen").catch(() => {}); // a phone that sleeps stops the page
  const said = await loadJson("bundle.json");
  const own = await loadJson("browser.json");
  shown("case").textContent = said.case;
  if (said.format !== FORMAT) {
    refuse("This bundle has another format; make it again with `parity bundle`.");
  }
  const { device } = said.settings;
  const told = await driver.hello({}, null, { files: [], build: own.build, device });
  checkBrowser(told, said.settings);
  await checkFiles(said.files);
  const { npz, values, log } = await run(said, own);
  const { case: id, files, entries, samples, settings, layers } = said;
  const about = {
    ...namesOf(told, device),
    ...{ case: id, files, entries, samples, settings, layers },
    ...{ version: own.version, log, format: FORMAT, values },
  };
  const bytes = new TextEncoder().encode(JSON.stringify(about));
  npz.add("about", { dtype: "|u1", shape: [bytes.length], bytes });
  return npz.blob();
}

function save(blob) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = "trace.npz";
  link.click();
}

try {
  const blob = await trace();
  shown("save").onclick = () => save(blob);
  shown("save").hidden = false;
  await say("The trace is made; give trace.npz to `parity judge` beside the suite.", 1);
  document.body.dataset.ended = "made";
  save(blob);
} catch (error) {
  const known = error instanceof Refusal;
  const why = known ? error.message : `This page failed: ${describe(error, driver)}`;
  await say(`${why.split("\n")[0]}${known ? "" : "."}`);
  document.body.dataset.ended = "refused";
}
