"use strict";
// The compiled scheduling half in web workers. A worker answers its requests in order.

const packed = JSON.parse(document.getElementById("engine").textContent);
const engineBytes = unpack(packed.wasm);

async function unpack(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; ++i) bytes[i] = text.charCodeAt(i);
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
}

/** Runs in the worker. Receives the engine's bytes, then {id, request}; sends {id, answer} or {id, progress}. */
function serve() {
  let asked = null;
  const report = (text) => postMessage({id: asked, progress: text});
  const engine = new Promise((made) => onmessage = ({data}) => made(makeEngine({wasmBinary: data, report})));
  engine.then((module) => {
    onmessage = ({data: {id, request}}) => {
      asked = id;
      const size = module.lengthBytesUTF8(request) + 1;
      const place = module._malloc(size);
      module.stringToUTF8(request, place, size);
      const answer = module.UTF8ToString(module._chimera_answer(place));
      module._free(place);
      postMessage({id, answer});
    };
    postMessage({ready: true});
  });
}

const engineSource = URL.createObjectURL(
    new Blob([packed.script, `\n${serve}\nserve();`], {type: "text/javascript"}));

class Engine {
  constructor() {
    this.waiting = new Map();  // id: {resolve, reject, onProgress}
    this.last = 0;
    this.start();
  }

  start() {
    const worker = new Worker(engineSource);
    this.worker = worker;
    this.ready = new Promise((resolve) => this.isReady = resolve);
    worker.onmessage = ({data}) => this.take(data);
    worker.onerror = (event) => this.fail(`the engine stopped: ${event.message ?? "out of memory"}`);
    engineBytes.then((bytes) => worker.postMessage(bytes));
  }

  take({ready, id, progress, answer}) {
    if (ready) return this.isReady();
    const asked = this.waiting.get(id);
    if (progress !== undefined) return asked?.onProgress?.(JSON.parse(progress));
    this.waiting.delete(id);
    const value = JSON.parse(answer);
    if (value.error === undefined) asked.resolve(value);
    else asked.reject(new Error(value.error));
  }

  /** Returns the answer; rejects with a one-line Error if the engine refuses the request. */
  async ask(request, onProgress) {
    await this.ready;
    const id = ++this.last;
    return new Promise((resolve, reject) => {
      this.waiting.set(id, {resolve, reject, onProgress});
      this.worker.postMessage({id, request: JSON.stringify(request)});
    });
  }

  fail(message) {
    const asked = [...this.waiting.values()];
    this.waiting.clear();
    this.worker.terminate();
    this.start();
    for (const {reject} of asked) reject(new Error(message));
  }

  /** Cancels all requests and starts a new worker. */
  stop() {
    this.fail("stopped");
  }
}

/** Runs one request at a time. Of the requests that arrive meanwhile, only the last one runs. */
class Latest {
  constructor(ask) {
    this.ask = ask;
    this.busy = false;
    this.next = null;
  }

  async request(...question) {
    this.next = question;
    if (this.busy) return;
    this.busy = true;
    while (this.next !== null) {
      const now = this.next;
      this.next = null;
      await this.ask(...now);
    }
    this.busy = false;
  }
}
