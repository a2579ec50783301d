// onnxruntime-web itself: what a session asks of it, live or from a bundle.

// NumPy's dtype to the type of a tensor, its items' size, and its array.
const KINDS = {
  "<f4": ["float32", 4, Float32Array],
  "<f8": ["float64", 8, Float64Array],
  "<f2": ["float16", 2, globalThis.Float16Array ?? Uint16Array],
  "|b1": ["bool", 1, Uint8Array],
  "|u1": ["uint8", 1, Uint8Array],
  "|i1": ["int8", 1, Int8Array],
  "<u2": ["uint16", 2, Uint16Array],
  "<i2": ["int16", 2, Int16Array],
  "<u4": ["uint32", 4, Uint32Array],
  "<i4": ["int32", 4, Int32Array],
  "<u8": ["uint64", 8, BigUint64Array],
  "<i8": ["int64", 8, BigInt64Array],
};
const DTYPES = Object.fromEntries(Object.entries(KINDS).map(([d, [t]]) => [t, d]));
const LEVELS = { 0: "disabled", 1: "basic", 2: "extended", 99: "all" };
const CPU = "CPUExecutionProvider";
// What each device is called where a session is made.
const NAMES = { [CPU]: "wasm", WebGpuExecutionProvider: "webgpu" };
const KEPT = 400; // lines of a log

export function bytesOf(dtype, shape) {
  const kind = KINDS[dtype];
  if (!kind) throw new Error(`onnxruntime-web takes no values of the dtype ${dtype}`);
  return shape.reduce((size, one) => size * one, kind[1]);
}

// What a page can say of an error: emscripten throws numbers, too.
export function describe(error, driver) {
  let text = error?.message ?? String(error);
  if (typeof error === "number")
    text = `WebAssembly threw the number ${error}, which has no text; a version before 1.18 does so for a model of ONNX's IR version 10 or newer`;
  return [text, ...driver.errors].join("\n").slice(0, 1 << 14) || "an error without a text";
}

export class Driver {
  constructor(base) {
    this.base = base;
    this.session = null;
    this.ort = null;
    this.lines = [];
    this.errors = [];
    for (const name of ["log", "info", "warn", "error", "debug"]) {
      console[name] = (...words) => this.#hear(words.join(" "));
    }
    addEventListener("unhandledrejection", (event) => this.#hear(`[E: ${event.reason}`));
  }

  // ONNX Runtime says a great deal; what it says of placement and of errors is kept.
  #hear(text) {
    if (/\[E:onnxruntime|\[F:onnxruntime|Aborted|out of memory|OOM/.test(text)) {
      if (this.errors.length < 20) this.errors.push(text.slice(0, 2000));
    }
    const placed = /VerifyEachNodeIsAssignedToAnEp\] (.*)$/s.exec(text);
    if (placed) this.placed.push(placed[1].trim());
    else if (!/\[[VI]:onnxruntime/.test(text) && this.lines.length < KEPT) {
      if (/\[[WEF]:onnxruntime/.test(text)) this.lines.push(text.slice(0, 1000));
    }
  }

  async hello(_arrays, _show, { files, build, device }) {
    this.files = files;
    this.build = build;
    const told = { browser: navigator.userAgent, adapter: "", software: false };
    if (device === "webgpu" && navigator.gpu) {
      const adapter = await navigator.gpu.requestAdapter();
      if (adapter) {
        const { vendor, architecture, description } = adapter.info ?? {};
        told.adapter = [vendor, architecture, description].filter(Boolean).join(" ") || "unnamed";
        const known = /swiftshader|llvmpipe|lavapipe|basic render/i.test(told.adapter);
        told.software = Boolean(adapter.info?.isFallbackAdapter) || known;
      }
    }
    return told;
  }

  async #load(threads) {
    if (this.ort) return;
    const url = `${this.base}ort/${this.build}`;
    if (url.endsWith(".mjs")) {
      const module = await import(url);
      this.ort = module.InferenceSession ? module : module.default;
    } else this.ort = await globalOf(url);
    this.ort.env.wasm.wasmPaths = `${this.base}ort/`;
    this.ort.env.wasm.numThreads = threads;
    this.ort.env.logLevel = "verbose";
  }

  async open(arrays, _show, { model, folder, level, threads, provider, settings, left_out }) {
    await this.session?.release(); // one copy of the weights at a time
    this.session = null;
    this.placed = [];
    this.errors = [];
    this.lines = [];
    await this.#load(threads);
    const own = model ? model.slice(folder.length + 1) : "";
    const at = (name) => `${this.base}${folder}/${encodeURIComponent(name)}`;
    const graph = model
      ? new Uint8Array(await (await fetch(at(own))).arrayBuffer())
      : new Uint8Array(arrays.model.bytes);
    const optimization = left_out.length
      ? { disable_specified_optimizers: left_out.join(";") }
      : {};
    const device = NAMES[provider];
    this.session = await this.ort.InferenceSession.create(graph, {
      executionProviders: [device === "wasm" ? device : { name: device, ...settings }],
      graphOptimizationLevel: LEVELS[level],
      logSeverityLevel: 0,
      externalData: this.files.slice(1).map((name) => ({ path: name, data: at(name) })),
      extra: { optimization },
    });
    const placed = placements(this.placed);
    // What runs first is named first. An older version says nothing of placement.
    const providers = placed.names.sort((one, two) => (two === provider) - (one === provider));
    return {
      providers: providers.length ? providers : [provider],
      outputs: [...this.session.outputNames],
      said: this.lines.join("\n"),
      nodes: placed.nodes,
      on_cpu: device === "wasm" ? null : placed.nodes ? placed.onCpu : null,
    };
  }

  async run(arrays, show, { names }) {
    this.errors = [];
    const feeds = {};
    for (const [name, { dtype, shape, bytes }] of Object.entries(arrays)) {
      const [type, , Kind] = KINDS[dtype] ?? [];
      if (!type) throw new Error(`onnxruntime-web takes no values of the dtype ${dtype}`);
      feeds[name] = new this.ort.Tensor(type, new Kind(bytes), shape);
    }
    const made = await this.session.run(feeds, names, { logSeverityLevel: 2 });
    for (const name of names) {
      const tensor = made[name];
      const dtype = DTYPES[tensor.type];
      if (!dtype) throw new Error(`the value ${name} has the type ${tensor.type}`);
      const data = tensor.getData ? await tensor.getData() : tensor.data;
      const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
      await show(name, { dtype, shape: [...tensor.dims], bytes });
      tensor.dispose?.();
    }
  }
}

// Before 1.19 the build is a script, which leaves its object in a global variable.
function globalOf(url) {
  return new Promise((done, fail) => {
    const script = document.createElement("script");
    script.src = url;
    script.onload = () => done(globalThis.ort);
    script.onerror = () => fail(new Error(`${url} cannot be loaded`));
    document.head.append(script);
  });
}

// Read what ONNX Runtime prints of the nodes: the provider of each.
function placements(lines) {
  const found = { names: [], nodes: 0, onCpu: [] };
  let provider = "";
  for (const line of lines) {
    const head = /odes? ?\(?s?\)? placed on \[(\w+)\]\. Number of nodes: (\d+)/.exec(line);
    if (head) {
      provider = head[1];
      found.names.push(provider);
      found.nodes += Number(head[2]);
      // Where one provider runs all nodes, they are not listed.
      if (provider === CPU && line.startsWith("All")) {
        found.onCpu.push(...Array(Number(head[2])).fill(["", "unnamed"]));
      }
      continue;
    }
    const node = /^(\S+) \((.*)\)$/.exec(line);
    if (node && provider === CPU) found.onCpu.push([node[2], node[1]]);
  }
  return found;
}
