"use strict";
// The compiled scheduling half in web workers. A worker answers its requests in order.

// {script, wasm} if the page contains the engine, {folder} if it loads the engine at its first use
const packed = JSON.parse(document.getElementById("engine").textContent);

async function packedBytes() {
  if (packed.folder) {
    const answer = await fetch(`${packed.folder}engine.bin`);
    if (!answer.ok) throw new Error(`engine.bin: ${answer.status} ${answer.statusText}`);
    return new Uint8Array(await answer.arrayBuffer());
  }
  const text = atob(packed.wasm);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; ++i) bytes[i] = text.charCodeAt(i);
  return bytes;
}

let unpacked = null;
/** Returns the bytes of the engine's WebAssembly module. */
function engineBytes() {
  unpacked ??= packedBytes().then((bytes) => new Response(
      new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer());
  return unpacked;
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

const engineSource = packed.folder ? `${packed.folder}engine.js` : URL.createObjectURL(
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
    this.ready = new Promise((resolve, reject) => [this.isReady, this.isBroken] = [resolve, reject]);
    this.ready.catch(() => {});  // every question reports it
    worker.onmessage = ({data}) => this.take(data);
    worker.onerror = (event) => this.fail(`the engine stopped: ${event.message ?? "out of memory"}`);
    engineBytes().then((bytes) => worker.postMessage(bytes),
                       (error) => this.isBroken(new Error(`the engine cannot be loaded: ${error.message}`)));
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

/** Engines that answer several requests side by side. */
class Engines {
  constructor() {
    this.engines = [];
    this.stopped = false;
  }

  /** Calls take(i, answer) for each answer as it arrives; the answer is an Error if the engine refuses the request. */
  async askAll(requests, take) {
    const count = Math.max(1, Math.min(requests.length, 4, (navigator.hardwareConcurrency ?? 2) - 1));
    while (this.engines.length < count) this.engines.push(new Engine());
    this.stopped = false;
    let next = 0;
    await Promise.all(this.engines.slice(0, count).map(async (engine) => {
      while (next < requests.length && !this.stopped) {
        const i = next++;
        const answer = await engine.ask(requests[i]).catch((error) => error);
        if (!this.stopped) take(i, answer);
      }
    }));
  }

  stop() {
    this.stopped = true;
    for (const engine of this.engines) engine.stop();
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

let catalog = null;  // names of schedules, models, axes and options, from the engine
let page = null;     // colors and hatches, for the drawing code

let quick = null;
/** The engine for short requests, which starts at the first one. */
const quickEngine = {ask: (...question) => (quick ??= new Engine()).ask(...question)};

let slow = null;
/** Returns the engine for long requests, which can be stopped; starts it at the first call. */
function slowEngine() {
  slow ??= new Engine();
  return slow;
}
