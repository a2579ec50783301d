// NumPy's .npz files: zips of .npy files, without compression.

const MOST = 0xffffffff; // bytes of a zip in its first form
const LOCAL = [0x04034b50, 30];
const CENTRAL = [0x02014b50, 46];
const END = [0x06054b50, 22];
const UTF8 = 0x0800; // what a zip says of its names
const TODAY = 0x21; // 1 January 1980, the first day of a zip

const TABLE = Uint32Array.from({ length: 256 }, (_, index) => {
  let sum = index;
  for (let bit = 0; bit < 8; bit++) sum = sum & 1 ? (sum >>> 1) ^ 0xedb88320 : sum >>> 1;
  return sum;
});

function crc32(bytes, before = 0) {
  let sum = ~before;
  for (let at = 0; at < bytes.length; at++) sum = TABLE[(sum ^ bytes[at]) & 255] ^ (sum >>> 8);
  return ~sum >>> 0;
}

async function viewOf(blob, from, to) {
  return new DataView(await blob.slice(from, to).arrayBuffer());
}

function check(holds, why) {
  if (!holds) throw new Error(why);
}

// The arrays of a file, by name; each is read when it is asked for.
export class Npz {
  static async open(blob) {
    check(blob.size <= MOST, "it has more than 4 GiB, which a page does not read");
    const last = Math.max(0, blob.size - END[1] - 0xffff);
    const tail = await viewOf(blob, last);
    let at = tail.byteLength - END[1];
    while (at >= 0 && tail.getUint32(at, true) !== END[0]) at--;
    check(at >= 0, "it is cut short");
    const count = tail.getUint16(at + 10, true);
    const from = tail.getUint32(at + 16, true);
    const list = await viewOf(blob, from, from + tail.getUint32(at + 12, true));
    const npz = new Npz(blob);
    let next = 0;
    for (let index = 0; index < count; index++) {
      check(list.getUint32(next, true) === CENTRAL[0], "its list of arrays is damaged");
      const size = list.getUint16(next + 28, true);
      const bytes = new Uint8Array(list.buffer, next + CENTRAL[1], size);
      npz.#members.set(new TextDecoder().decode(bytes), {
        method: list.getUint16(next + 10, true),
        crc: list.getUint32(next + 16, true),
        size: list.getUint32(next + 24, true),
        at: list.getUint32(next + 42, true),
      });
      next += CENTRAL[1] + size + list.getUint16(next + 30, true) + list.getUint16(next + 32, true);
    }
    return npz;
  }

  #members = new Map();
  #blob;

  constructor(blob) {
    this.#blob = blob;
  }

  // The array of a name: its dtype, its shape, and a buffer of its bytes.
  async read(name) {
    const member = this.#members.get(`${name}.npy`);
    check(member, `it has no array ${name}`);
    check(member.method === 0, `its array ${name} is compressed`);
    const head = await viewOf(this.#blob, member.at, member.at + LOCAL[1]);
    check(head.getUint32(0, true) === LOCAL[0], `its array ${name} is damaged`);
    const from = member.at + LOCAL[1] + head.getUint16(26, true) + head.getUint16(28, true);
    const buffer = await this.#blob.slice(from, from + member.size).arrayBuffer();
    const whole = buffer.byteLength === member.size;
    check(whole && crc32(new Uint8Array(buffer)) === member.crc, `its array ${name} is damaged`);
    const view = new DataView(buffer);
    const wide = view.getUint8(6) > 1;
    const begin = wide ? 12 : 10;
    const end = begin + (wide ? view.getUint32(8, true) : view.getUint16(8, true));
    const text = new TextDecoder("latin1").decode(new Uint8Array(buffer, begin, end - begin));
    const said = /'descr': '([^']+)', 'fortran_order': False, 'shape': \(([\d, ]*)\)/.exec(text);
    check(said, `its array ${name} has a form that a page does not read`);
    const shape = said[2].split(",").filter((one) => one.trim()).map(Number);
    // A typed array begins at a multiple of its items' size.
    return { dtype: said[1], shape, bytes: buffer.slice(end) };
  }
}

// Collects arrays. Each is a Blob of its own, which a browser may keep on its disk.
export class NpzWriter {
  #parts = [];
  #list = [];
  #size = 0;

  add(name, { dtype, shape, bytes }) {
    const listed = shape.length === 1 ? `${shape[0]},` : shape.join(", ");
    const head = `{'descr': '${dtype}', 'fortran_order': False, 'shape': (${listed}), }`;
    const length = Math.ceil((head.length + 11) / 64) * 64 - 10;
    const npy = new Uint8Array(10 + length).fill(32);
    npy.set([0x93, ...new TextEncoder().encode("NUMPY"), 1, 0, length & 255, length >> 8]);
    npy.set(new TextEncoder().encode(head), 10);
    npy[9 + length] = 10;
    const file = new TextEncoder().encode(`${name}.npy`);
    const size = npy.length + bytes.length;
    const crc = crc32(bytes, crc32(npy));
    const local = header(LOCAL, { 4: 20, 6: UTF8, 12: TODAY, 26: file.length }, [14, crc, size, size]);
    const central = header(
      CENTRAL,
      { 4: 20, 6: 20, 8: UTF8, 14: TODAY, 28: file.length },
      [16, crc, size, size],
    );
    central.setUint32(42, this.#size, true);
    this.#list.push(central, file);
    const part = new Blob([local, file, npy, bytes]);
    this.#parts.push(part);
    this.#size += part.size;
    check(this.#size < MOST, "the values have more than 4 GiB, which a page does not write");
  }

  blob() {
    const list = new Blob(this.#list);
    const count = this.#list.length / 2;
    const end = header(END, { 8: count, 10: count }, [12, list.size, this.#size]);
    return new Blob([...this.#parts, list, end]);
  }
}

// A header of a zip: short numbers by their places, and long ones that stand in a row.
function header([mark, length], short, [from, ...long]) {
  const view = new DataView(new ArrayBuffer(length));
  view.setUint32(0, mark, true);
  for (const [at, value] of Object.entries(short)) view.setUint16(Number(at), value, true);
  long.forEach((value, index) => view.setUint32(from + 4 * index, value, true));
  return view;
}
