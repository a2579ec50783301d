// Answer the frames of the harness, one after another. A frame is the length of its
// head, the head in JSON, and the bytes of its arrays.
import { Driver, bytesOf, describe } from "./driver.mjs";

const base = new URL("..", import.meta.url).href;
const driver = new Driver(base);

function pack(head, arrays = []) {
  const listed = arrays.map((one) => [one.name, one.dtype, one.shape]);
  const text = new TextEncoder().encode(JSON.stringify({ head, arrays: listed }));
  const size = new DataView(new ArrayBuffer(4));
  size.setUint32(0, text.length);
  return new Blob([size.buffer, text, ...arrays.map((one) => one.bytes)]);
}

function unpack(buffer) {
  const length = new DataView(buffer).getUint32(0);
  const text = new TextDecoder().decode(new Uint8Array(buffer, 4, length));
  const { head, arrays } = JSON.parse(text);
  const found = {};
  let at = 4 + length;
  for (const [name, dtype, shape] of arrays) {
    const size = bytesOf(dtype, shape);
    // A typed array begins at a multiple of its items' size.
    found[name] = { dtype, shape, bytes: buffer.slice(at, at + size) };
    at += size;
  }
  return { head, arrays: found };
}

async function tell(head, arrays) {
  const said = await fetch(`${base}told`, { method: "POST", body: pack(head, arrays) });
  if (!said.ok) throw new Error(`the harness answers ${said.status}`);
}

async function serve() {
  for (;;) {
    const asked = await fetch(`${base}next`);
    if (asked.status !== 200) break;
    const show = (name, value) => tell({ value: name }, [{ name, ...value }]);
    let done;
    try {
      const { head, arrays } = unpack(await asked.arrayBuffer());
      done = await driver[head.do](arrays, show, head.with);
    } catch (error) {
      await tell({ failed: describe(error, driver) });
      continue;
    }
    await tell({ done: done ?? null });
  }
}

// The harness sees at once when this request ends, whatever ended the page.
fetch(`${base}alive`).catch(() => {});
// A page that can no longer answer ends, so nobody waits for it.
serve().finally(() => window.close());
