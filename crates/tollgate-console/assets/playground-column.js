// A model of the playground with its conversation: sends it, and shows the answer as it arrives, with its duration and cost.
import { markdown } from "./markdown.js";
import { clear, showLost } from "./parts.js";
import { codecs, events, newAnswer } from "./playground-protocols.js";

// Texts of streams that are kept for the reader, in characters.
const MAX_RAW = 200_000;
// Number of look-ups of a request's record, which has the amount once it is booked, and the time between two look-ups.
const LOOKS = 12;
const LOOK_MS = 700;

// Finish reasons that are not shown.
const ENDS = ["stop", "STOP", "end_turn", "tool_calls", "tool_use", "completed"];

const part = (node, name) => node.querySelector(`[data-${name}]`);

export class Column {
  messages = [];
  raw = "";
  headers = "";
  square = null;
  // The last request, with the model and the messages that it was made of.
  last = null;
  #stop = null;
  #result = null;

  constructor(playground, model) {
    this.playground = playground;
    this.node = document.getElementById("column").content.firstElementChild.cloneNode(true);
    this.model = model;
    const select = part(this.node, "model");
    select.value = model;
    if (!select.value) select.add(new Option(model, model, true, true));
    select.addEventListener("change", () => { this.model = select.value; playground.modelChanged(this); });
    part(this.node, "remove").addEventListener("click", () => playground.remove(this));
    part(this.node, "stop").addEventListener("click", () => this.#stop?.abort());
    part(this.node, "retry").addEventListener("click", () => this.retry());
    part(this.node, "edit").addEventListener("click", () => playground.edit(this));
    part(this.node, "copy-answer").addEventListener("click", () => playground.copy(this.messages.findLast((message) => message.role === "assistant")?.text ?? ""));
    this.node.addEventListener("focusin", () => playground.activate(this));
  }

  get isBusy() { return this.#stop !== null; }

  showModel({ initial, price, title, words }) {
    const place = this.playground.columns.indexOf(this) + 1;
    part(this.node, "talk").setAttribute("aria-label", `${words.answer} ${place}: ${this.model}`);
    this.node.setAttribute("aria-label", `${place}: ${this.model}`);
    part(this.node, "initial").textContent = initial;
    part(this.node, "price").textContent = price;
    part(this.node, "price").title = title;
    for (const button of this.node.querySelectorAll("[data-remove]")) button.title = words.remove;
  }

  // The model's entry in the model square, which not all readers see.
  async readSquare(address, options) {
    const answer = await fetch(address, options).catch(() => null);
    const square = answer?.ok ? await answer.json().catch(() => null) : null;
    const talk = part(this.node, "talk");
    if (square || (answer && answer.status < 500)) clear(talk);
    else showLost(talk, () => this.playground.modelChanged(this));
    return square;
  }

  // The reader's turn, and the answer to it.
  async say(message) {
    this.messages.push(message);
    this.#show(message);
    await this.run();
  }

  retry() {
    while (this.messages.at(-1)?.role === "assistant") this.messages.pop();
    if (this.messages.length === 0 || this.isBusy) return;
    this.redraw();
    this.run();
  }

  redraw() {
    part(this.node, "talk").replaceChildren();
    for (const message of this.messages) this.#show(message);
    this.#state(null);
  }

  #show(message) {
    const turn = document.createElement("div");
    if (message.role === "user") {
      turn.className = "you sm";
      turn.append(message.text);
      for (const image of message.images) {
        const shown = document.createElement("img");
        shown.src = `data:${image.type};base64,${image.data}`;
        shown.alt = image.name;
        turn.append(shown);
      }
    } else if (message.role === "tool") {
      turn.className = "you sm mono";
      turn.append(message.results.map((result) => `${result.name} → ${result.text}`).join("\n"));
    } else {
      turn.className = "said sm";
      this.#draw(turn, message);
    }
    part(this.node, "talk").append(turn);
    return turn;
  }

  #draw(turn, answer) {
    const { words } = this.playground;
    const blocks = markdown(answer.text);
    if (answer.thinking) {
      const details = document.createElement("details");
      const summary = document.createElement("summary");
      summary.textContent = words.thinking;
      details.open = Boolean(turn.querySelector("details")?.open);
      details.append(summary, ...markdown(answer.thinking));
      blocks.unshift(details);
    }
    for (const call of answer.calls.filter(Boolean)) {
      const code = document.createElement("pre");
      code.textContent = `${call.name}(${call.arguments})`;
      code.tabIndex = 0;
      const box = document.createElement("div");
      box.className = "code";
      box.append(code);
      blocks.push(box);
    }
    turn.replaceChildren(...blocks);
  }

  async run() {
    const { playground } = this;
    this.#result?.remove();
    const request = playground.request(this);
    this.last = { request, model: this.model, messages: [...this.messages] };
    const answer = newAnswer();
    const turn = this.#show({ role: "assistant", ...answer });
    turn.classList.add("caret");
    this.#stop = new AbortController();
    [this.raw, this.headers] = ["", ""];
    const began = performance.now();
    const time = { first: null, all: null };
    this.#state("busy", playground.words.waiting);
    let id = null;
    let fault = null;
    let drawing = 0;
    try {
      const response = await fetch(request.address, {
        method: "POST", headers: request.sent, body: JSON.stringify(request.body), credentials: "omit", signal: this.#stop.signal,
      });
      id = response.headers.get("x-request-id");
      this.headers = [`HTTP ${response.status}`, ...[...response.headers].map(([name, value]) => `${name}: ${value}`)].join("\n");
      for await (const event of events(response, (text) => { if (this.raw.length < MAX_RAW) this.raw += text; })) {
        codecs[request.protocol].take(answer, event);
        if (answer.text || answer.thinking || answer.calls.length) time.first ??= performance.now() - began;
        // Drawn once a frame, however fast events arrive.
        drawing ||= requestAnimationFrame(() => { drawing = 0; this.#draw(turn, answer); });
        this.#state("busy", playground.words.streaming, time, answer);
      }
      if (!response.ok && !answer.error) fault = `HTTP ${response.status}`;
    } catch (error) {
      fault = error.name === "AbortError" ? null : playground.words.lost;
      if (error.name === "AbortError") answer.finish = "stopped";
    }
    cancelAnimationFrame(drawing);
    this.#stop = null;
    time.all = performance.now() - began;
    turn.classList.remove("caret");
    this.#draw(turn, answer);
    this.#ended(turn, answer, answer.error || fault, time, id);
  }

  #ended(turn, answer, fault, time, id) {
    const { playground } = this;
    const { text, thinking, raw } = answer;
    const calls = answer.calls.filter(Boolean);
    if (text || calls.length) this.messages.push({ role: "assistant", text, thinking, calls, raw });
    if (fault) {
      const banner = document.createElement("div");
      banner.className = "banner bad";
      banner.append(fault);
      turn.append(banner);
    }
    const [tone, word] = fault ? ["bad", playground.words.failed]
      : answer.finish === "stopped" ? ["off", playground.words.stopped]
      : ["ok", !answer.finish || ENDS.includes(answer.finish) ? playground.words.done : `${playground.words.done} · ${answer.finish}`];
    this.#state(tone, word, time, answer);
    const link = part(this.node, "record");
    link.hidden = !id;
    if (id) link.href = `${playground.console}/log/${encodeURIComponent(id)}`;
    if (calls.length && !fault) this.#askForResults(calls);
    playground.answered(this);
    if (id) this.#charge(id);
  }

  // The amount is the record's: nothing is estimated.
  async #charge(id) {
    const shown = part(this.node, "cost");
    let answer;
    for (let look = 0; look < LOOKS; look += 1) {
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
      answer = await fetch(`${this.playground.console}/admin/v1/usage/${encodeURIComponent(id)}`).catch(() => null);
      if (answer?.ok) {
        const { sale } = await answer.json();
        shown.textContent = sale === null ? this.playground.words.unpriced : this.playground.money(sale);
        shown.title = sale === null ? "" : this.playground.usd(sale);
        return;
      }
      if (answer && answer.status !== 404) break;
    }
    // A record that is not booked yet is found by its link.
    const talk = part(this.node, "talk");
    if (!answer || answer.status >= 500) showLost(talk, () => { clear(talk); this.#charge(id); });
  }

  // The reader types the results of calls, and the conversation continues with them.
  #askForResults(calls) {
    const { words } = this.playground;
    const form = document.createElement("form");
    form.className = "col";
    for (const [place, call] of calls.entries()) {
      const label = document.createElement("label");
      label.className = "field";
      const name = document.createElement("span");
      name.className = "label";
      name.textContent = `${words.result} ${call.name}`;
      const input = document.createElement("textarea");
      input.className = "input mono";
      input.rows = 2;
      input.name = String(place);
      label.append(name, input);
      form.append(label);
    }
    const button = document.createElement("button");
    button.className = "btn";
    button.textContent = words.sendResult;
    form.append(button);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.isBusy) return;
      const data = new FormData(form);
      form.remove();
      this.say({ role: "tool", results: calls.map((call, place) => ({ id: call.id, name: call.name, text: String(data.get(String(place))) })) });
    });
    this.#result = form;
    part(this.node, "talk").append(form);
  }

  #state(tone, word = "", time = {}, answer = {}) {
    const state = part(this.node, "state");
    state.hidden = tone === null;
    state.className = `st ${tone === "busy" ? "warn" : tone}`;
    const icons = { busy: "clock", ok: "okc", bad: "badc", off: "stop" };
    state.querySelector("use").setAttribute("href", state.dataset.icons + (icons[tone] ?? "minus"));
    state.lastElementChild.textContent = word;
    const speed = time.first !== null && time.all && answer.output > 1 ? answer.output / ((time.all - time.first) / 1000) : null;
    const figures = [
      time.first ? `${Math.round(time.first)} ms` : "",
      speed && Number.isFinite(speed) && time.all - time.first > 20 ? this.playground.words.speed.replace("{speed}", speed < 10 ? speed.toFixed(1) : Math.round(speed)) : "",
      answer.input || answer.output ? this.playground.words.tokens.replace("{input}", answer.input ?? "–").replace("{output}", answer.output ?? "–") : "",
    ];
    part(this.node, "figures").textContent = figures.filter(Boolean).join("  ·  ");
    if (tone === "busy") part(this.node, "cost").textContent = "";
    part(this.node, "stop").hidden = tone !== "busy";
    for (const name of ["retry", "edit", "copy-answer"]) part(this.node, name).hidden = tone === "busy" || tone === null;
    if (tone === null || tone === "busy") part(this.node, "record").hidden = true;
  }
}
