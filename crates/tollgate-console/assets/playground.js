// The playground: one message to up to three models, over any protocol of callers, with the reader's own key. The key stays in this
// tab's memory, and conversations on this device, until the member signs out.
import { Column } from "./playground-column.js";
import { coloured, colouredCode, languages, shortened } from "./playground-code.js";
import { codecs } from "./playground-protocols.js";
import { timeFormat } from "./zone.js";

const MAX_COLUMNS = 3;
const MAX_IMAGES = 4;
const MAX_IMAGE_BYTES = 5 << 20;
// page.js removes it when the member signs out.
const KEPT = `tollgate.playground.${document.documentElement.dataset.member}`;
const MAX_KEPT = 20;
const MAX_KEPT_CHARS = 200_000;
// The tag of the playground's own requests in the usage log. Copied code does not carry it.
const MARK = { "x-tollgate-tags": "source=playground" };

const root = document.getElementById("playground");
const find = (name) => document.querySelector(`[data-${name}]`);
const all = (name) => [...document.querySelectorAll(`[data-${name}]`)];

const playground = {
  words: { ...find("words").dataset },
  console: root.dataset.console,
  columns: [],
  active: null,
  key: null,
  // Set while a key is made or looked up; a message that is sent meanwhile waits for it.
  coming: null,
  images: [],
  kept: null,
  view: "request",

  get protocol() { return document.querySelector("input[name=protocol]:checked"); },
  get stream() { return find("stream").checked; },

  usd: (decimal) => {
    const [whole, fraction = ""] = decimal.split(".");
    return `$${whole}.${fraction.replace(/0+$/, "").padEnd(2, "0")}`;
  },

  // In the currency of the pages, at its fixed rate, with six significant digits; exact if that is the USD.
  money(decimal) {
    const { symbol, rate } = this.words;
    if (symbol === "$") return this.usd(decimal);
    const amount = Number(decimal) * Number(rate);
    const decimals = amount === 0 ? 2 : Math.min(Math.max(5 - Math.floor(Math.log10(amount)), 2), 20);
    return this.usd(amount.toFixed(decimals)).replace("$", () => symbol);
  },

  // What is left of a budget or balance, in whole cents and never more than there is. An amount below a cent is shown as it is.
  rest(decimal) {
    const { symbol, rate } = this.words;
    const [sign, digits] = decimal.startsWith("-") ? ["−", decimal.slice(1)] : ["", decimal];
    const amount = symbol === "$" ? digits : (Number(digits) * Number(rate)).toFixed(6);
    const [whole, fraction = ""] = amount.split(".");
    const cents = `${whole}.${fraction.slice(0, 2).padEnd(2, "0")}`;
    const text = Number(cents) === 0 && Number(amount) > 0 ? this.money(digits) : `${symbol}${cents}`;
    return `${sign}${text}`;
  },

  // The effect of a side panel parameter for a model: how it is sent, or why it is not.
  support(column, name, protocol = this.protocol.value) {
    const fields = codecs[protocol].fields[name];
    if (fields.length === 0) return { reason: "notInProtocol" };
    const sets = column.square?.[protocol];
    if (!sets) return { field: fields[0] };
    const field = fields.find((known) => sets.supported.includes(known));
    if (field) return { field };
    const dropped = fields.find((known) => sets.dropped.includes(known));
    if (dropped) return { reason: "dropped" };
    if (fields.some((known) => sets.unsupported.includes(known))) return { reason: "refused" };
    return { field: fields[0] };
  },

  values(column, protocol) {
    const values = {};
    for (const input of all("parameter")) {
      const { field } = this.support(column, input.dataset.parameter, protocol);
      if (!field || input.value === "" || (input.type === "range" && !input.dataset.set)) continue;
      values[field] = ["range", "number"].includes(input.type) ? Number(input.value) : input.value;
    }
    return values;
  },

  tools() {
    const field = find("tools");
    const text = field.value.trim();
    let tools = [];
    let isWrong = false;
    try {
      const read = text ? JSON.parse(text) : [];
      tools = Array.isArray(read) ? read : [read];
      isWrong = tools.some((tool) => tool === null || typeof tool !== "object");
    } catch { isWrong = true; }
    field.setAttribute("aria-invalid", String(isWrong));
    find("tools-fault").hidden = !isWrong;
    find("tools-count").textContent = isWrong ? "!" : String(tools.length || "");
    return isWrong ? null : tools;
  },

  request(column, input = this.protocol) {
    const { value: protocol, dataset } = input;
    const path = codecs[protocol].path(column.model, this.stream);
    const { field } = this.support(column, "tools", protocol);
    const body = codecs[protocol].body({
      model: column.model, system: find("system").value.trim(), messages: column.messages, values: this.values(column, protocol),
      tools: field ? this.tools() ?? [] : [], stream: this.stream,
    });
    const credential = { name: dataset.credential, prefix: dataset.prefix };
    const headers = { "content-type": "application/json", ...JSON.parse(dataset.headers) };
    const sent = { ...headers, ...MARK, [credential.name]: credential.prefix + (this.key?.secret ?? "") };
    const masked = this.key?.shown ?? "$TOLLGATE_KEY";
    return { protocol, path, address: root.dataset.send + path, url: root.dataset.base + path, credential, headers, sent, masked, body, stream: this.stream };
  },

  // The request of the panel: the last one that was sent, or before the first the one that would be. Under another protocol it is the
  // same request, translated.
  shownRequest(column) {
    const { last } = column;
    if (last?.request.protocol === this.protocol.value) return last.request;
    const draft = { role: "user", text: find("message").value || "…", images: this.images };
    const { model, messages } = last ?? { model: column.model, messages: [...column.messages, draft] };
    return this.request(Object.assign(Object.create(column), { model, messages }));
  },

  async modelChanged(column) {
    this.allowAdding();
    column.square = null;
    const query = new URLSearchParams({ model: column.model });
    const headers = this.key ? { authorization: `Bearer ${this.key.secret}` } : {};
    const address = `${this.key ? root.dataset.send : this.console}/models.json?${query}`;
    const square = await column.readSquare(address, { headers, credentials: this.key ? "omit" : "same-origin" });
    const model = square?.data[0];
    const group = this.key?.group ?? document.getElementById("group")?.value;
    const offer = model?.groups.find((one) => one.group === group) ?? model?.groups[0];
    const sets = Object.fromEntries((square?.parameter_sets ?? []).map((set) => [set.id, set]));
    column.square = offer ? Object.fromEntries(offer.protocols.map((one) => [one.protocol, sets[one.parameters]])) : null;
    column.reads = model?.input_modalities ?? null;
    const { price } = offer ?? {};
    const priced = price?.free ? this.words.free
      : price?.input ? this.words.price.replace("{input}", () => this.money(price.input)).replace("{output}", () => this.money(price.output ?? "0")) : this.words.unpriced;
    const title = price?.input ? `${this.usd(price.input)} / ${this.usd(price.output ?? "0")}` : "";
    column.showModel({ initial: (model?.vendor ?? column.model)[0].toUpperCase(), price: offer ? priced : "", title, words: this.words });
    this.update();
  },

  add(model) {
    if (this.columns.length >= MAX_COLUMNS) return;
    const column = new Column(this, model ?? this.unused());
    this.columns.push(column);
    find("columns").append(column.node);
    this.activate(column);
    this.modelChanged(column);
    this.arrange();
    return column;
  },

  // The first model that the key may use and that has no column yet.
  unused() {
    const there = this.columns.map((column) => column.model);
    const models = [...find("first-model").options].map((option) => option.value);
    return models.find((model) => !there.includes(model) && (this.key?.models.includes(model) ?? true));
  },

  remove(column) {
    if (this.columns.length === 1 || column.isBusy) return;
    column.node.remove();
    this.columns = this.columns.filter((one) => one !== column);
    this.activate(this.columns[0]);
    this.arrange();
  },

  arrange() {
    find("columns").dataset.count = this.columns.length;
    this.allowAdding();
    for (const { node } of this.columns) node.querySelector("[data-remove]").hidden = this.columns.length === 1;
    const box = find("message");
    box.placeholder = [this.words.write, this.words.writeBoth, this.words.writeAll][this.columns.length - 1];
  },

  allowAdding() { find("add").disabled = this.columns.length >= MAX_COLUMNS || !this.unused(); },

  activate(column) {
    if (this.active === column) return;
    this.active = column;
    this.show();
  },

  // Greys out parameters that no model takes, and names the models that do not take the others.
  update() {
    for (const input of all("parameter")) {
      const found = this.columns.map((column) => this.support(column, input.dataset.parameter));
      const reasons = ["notInProtocol", "dropped", "refused"].flatMap((reason) => {
        const models = this.columns.filter((_, place) => found[place].reason === reason).map((column) => column.model);
        return models.length ? [this.words[reason].replace("{model}", [...new Set(models)].join(", "))] : [];
      });
      input.disabled = this.columns.length > 0 && found.every((one) => one.reason);
      const hint = document.getElementById(`${input.id}-hint`);
      [hint.textContent, hint.hidden] = [reasons.join(" "), reasons.length === 0];
      const output = document.getElementById(`${input.id}-value`);
      if (output) output.textContent = input.dataset.set ? Number(input.value).toLocaleString(document.documentElement.lang) : "–";
    }
    const blind = this.columns.filter((column) => column.reads && !column.reads.includes("image"));
    find("image").disabled = this.columns.length > 0 && blind.length === this.columns.length;
    find("image-hint").textContent = find("image").disabled ? this.words.noImages.replace("{model}", blind[0].model) : "";
    this.show();
  },

  // The request panel of the active model.
  show() {
    if (!this.active) return;
    const column = this.active;
    const request = this.shownRequest(column);
    const { path, credential, masked } = request;
    const headers = Object.entries({ ...request.headers, ...MARK }).map(([name, value]) => `${name}: ${value}`);
    const head = [`POST ${path}`, `${credential.name}: ${credential.prefix}${masked}`, ...headers].join("\n");
    const texts = {
      request: () => `${head}\n\n${shortened(request.body)}`, raw: () => column.raw || this.words.nothingYet, headers: () => column.headers || this.words.nothingYet,
    };
    const text = (texts[this.view] ?? (() => languages[this.view](request)))();
    const nodes = () => (this.view in languages ? colouredCode(text) : [text]);
    find("shown").replaceChildren(...(this.view === "request" ? [`${head}\n\n`, ...coloured(text.slice(head.length + 2))] : nodes()));
    find("shown-model").textContent = this.columns.length > 1 ? (column.last?.model ?? column.model) : "";
    const others = [...document.querySelectorAll("input[name=protocol]")].filter((input) => !input.checked);
    find("others").replaceChildren(...others.map((input) => {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "plain mono";
      button.textContent = `POST ${codecs[input.value].path(column.last?.model ?? column.model, this.stream)}`;
      button.addEventListener("click", () => input.click());
      return button;
    }));
  },

  copy(text) {
    const button = document.createElement("button");
    button.dataset.copy = text;
    button.hidden = true;
    document.body.append(button);
    button.click();
    button.remove();
  },

  async send() {
    await this.coming;
    const field = find("message");
    const text = field.value.trim();
    if (!text || this.columns.some((column) => column.isBusy)) return;
    if (!this.key) return this.needKey();
    if (this.tools() === null) return find("tools").focus();
    const message = { role: "user", text, images: this.images };
    [field.value, this.images] = ["", []];
    this.showImages();
    const sends = this.columns.map((column) => column.say({ ...message }));
    this.show();
    await Promise.all(sends);
    field.focus();
  },

  needKey() {
    find("key-missing").hidden = false;
    document.getElementById("secret").focus();
  },

  // Puts the last message back into the box, and removes it and everything after it from every column that was asked it: what is sent next
  // goes to all of them.
  edit(column) {
    if (this.columns.some((one) => one.isBusy)) return;
    const lastOf = ({ messages }) => messages.findLastIndex((message) => message.role === "user");
    const message = column.messages[lastOf(column)];
    if (!message) return;
    for (const one of this.columns) {
      const at = lastOf(one);
      if (one.messages[at]?.text !== message.text) continue;
      one.messages.splice(at);
      one.redraw();
    }
    find("message").value = message.text;
    this.images = message.images;
    this.showImages();
    find("message").focus();
  },

  answered() {
    this.keep();
    this.show();
  },

  showImages() {
    find("images").replaceChildren(...this.images.map((image) => {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "chip on";
      button.textContent = `${image.name} ×`;
      button.addEventListener("click", () => { this.images = this.images.filter((one) => one !== image); this.showImages(); });
      return button;
    }));
  },

  async addImages(files) {
    for (const file of files) {
      if (!/^image\/(png|jpeg|webp|gif)$/.test(file.type) || file.size > MAX_IMAGE_BYTES || this.images.length >= MAX_IMAGES) {
        find("image-hint").textContent = this.words.imageLimit;
        continue;
      }
      const address = await new Promise((resolve) => {
        const reader = new FileReader();
        reader.addEventListener("load", () => resolve(String(reader.result)));
        reader.readAsDataURL(file);
      });
      this.images = [...this.images, { name: file.name || "image", type: file.type, data: address.split(",")[1] }];
    }
    this.showImages();
    this.show();
  },

  // Keys.
  obtain(key) {
    const coming = key.catch(() => {}).finally(() => { if (this.coming === coming) this.coming = null; });
    this.coming = coming;
  },

  // In the language of the page; an error without a translation has the gateway's own text.
  keyFault(body) {
    const { code, message } = body?.error ?? {};
    const said = JSON.parse(root.dataset.faults)[code] ?? (message ? null : this.words.lost);
    const fault = find("key-fault");
    [fault.textContent, fault.lang, fault.hidden] = [said ?? message, said ? document.documentElement.lang : "en", false];
  },

  async use(secret) {
    const answer = await fetch(`${root.dataset.send}/v1/key`, { headers: { authorization: `Bearer ${secret}` }, credentials: "omit" }).catch(() => null);
    if (!answer?.ok) {
      this.keyFault(await answer?.json().catch(() => null));
      document.getElementById("secret").setAttribute("aria-invalid", "true");
      return;
    }
    const known = await answer.json();
    find("key-fault").hidden = true;
    document.getElementById("secret").removeAttribute("aria-invalid");
    this.key = { secret, shown: `${known.prefix}••••${known.suffix}`, group: known.groups[0], models: known.models };
    // Callers may not see the spending of a group.
    const left = known.budgets.filter((budget) => budget.of !== "group").map((budget) => budget.left).concat(known.balance ?? []);
    find("key-name").textContent = `${known.name} · ${known.groups.join(", ")}`;
    find("key-shown").textContent = this.key.shown;
    const shares = known.budgets.filter((budget) => budget.of === "group").map((budget) => Math.floor(100 * Number(budget.left) / (Number(budget.amount) || 1)));
    find("key-left").textContent = left.length ? this.words.left.replace("{amount}", () => this.rest(left.reduce((one, other) => (Number(other) < Number(one) ? other : one))))
      : shares.length ? this.words.leftShare.replace("{percent}", Math.min(...shares)) : this.words.noBudget;
    this.keyShown(true);
    const may = new Set(known.models);
    for (const option of document.querySelectorAll("[data-model] option")) option.disabled = !may.has(option.value);
    for (const column of this.columns) this.modelChanged(column);
  },

  keyShown(isThere) {
    find("key-there").hidden = !isThere;
    find("key-ask").hidden = isThere;
    if (isThere) find("key-missing").hidden = true;
    this.allowAdding();
    this.show();
  },

  async makeKey(group) {
    const answer = await fetch(`${this.console}/admin/v1/me/playground-key`, {
      method: "POST", headers: { "content-type": "application/json", "x-csrf-token": root.dataset.csrf }, body: JSON.stringify(group ? { group } : {}),
    }).catch(() => null);
    const made = await answer?.json().catch(() => null);
    if (answer?.ok) return this.use(made.key);
    this.keyFault(made);
  },

  // Conversations on this device, without images.
  stored() {
    try { return JSON.parse(localStorage.getItem(KEPT)) ?? []; } catch { return []; }
  },

  keep() {
    const title = this.columns.flatMap((column) => column.messages).find((message) => message.role === "user")?.text.slice(0, 80);
    if (!title) return;
    this.kept ??= Date.now();
    const columns = this.columns.map(({ model, messages }) => ({ model, messages: messages.map((message) => (message.images ? { ...message, images: [] } : message)) }));
    const entry = { at: this.kept, title, protocol: this.protocol.value, system: find("system").value, columns };
    const entries = [entry, ...this.stored().filter((one) => one.at !== this.kept)].slice(0, MAX_KEPT);
    try {
      if (JSON.stringify(entry).length < MAX_KEPT_CHARS) localStorage.setItem(KEPT, JSON.stringify(entries));
    } catch { /* The browser keeps nothing, or is full: the conversation goes on. */ }
    this.list();
  },

  list() {
    const entries = this.stored();
    find("earlier").hidden = entries.length === 0;
    const format = timeFormat({ day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit" });
    find("earlier-list").replaceChildren(...entries.map((entry) => {
      const item = document.createElement("li");
      const button = document.createElement("button");
      button.type = "button";
      button.className = "plain cut";
      button.textContent = entry.title;
      const time = document.createElement("time");
      time.dateTime = new Date(entry.at).toISOString();
      time.textContent = format.format(entry.at);
      button.addEventListener("click", () => this.restore(entry));
      item.append(button, time);
      return item;
    }));
  },

  restore(entry) {
    if (this.columns.some((column) => column.isBusy)) return;
    this.clear();
    this.kept = entry.at;
    find("system").value = entry.system ?? "";
    document.querySelector(`input[name=protocol][value=${entry.protocol}]`)?.click();
    for (const { model, messages } of entry.columns.slice(0, MAX_COLUMNS)) {
      const column = this.add(model);
      column.messages = messages;
      column.redraw();
    }
    this.show();
  },

  clear() {
    for (const { node } of this.columns) node.remove();
    [this.columns, this.active, this.kept, this.images] = [[], null, null, []];
    this.showImages();
  },

  // The setup as an address, without the conversation.
  share() {
    const query = new URLSearchParams(this.columns.map((column) => ["model", column.model]));
    query.set("protocol", this.protocol.value);
    if (!this.stream) query.set("stream", "0");
    for (const input of all("parameter")) if (input.value !== "" && (input.type !== "range" || input.dataset.set)) query.set(input.dataset.parameter, input.value);
    const url = new URL(location.pathname, location.href);
    url.search = query;
    history.replaceState(null, "", url);
    this.copy(url.href);
  },

  begin() {
    const query = new URLSearchParams(location.search);
    document.querySelector(`input[name=protocol][value="${CSS.escape(query.get("protocol") ?? "")}"]`)?.click();
    if (query.get("stream") === "0") find("stream").checked = false;
    for (const input of all("parameter")) {
      if (!query.has(input.dataset.parameter)) continue;
      input.value = query.get(input.dataset.parameter);
      input.dataset.set = "1";
    }
    this.list();
    if (this.goOn()) return;
    const models = query.getAll("model").slice(0, MAX_COLUMNS);
    for (const model of models.length ? models : [find("first-model").value].filter(Boolean)) this.add(model);
  },

  // Takes over a conversation of the usage log.
  goOn() {
    try {
      const { protocol, model, system, messages: texts } = JSON.parse(sessionStorage.getItem("tollgate-continue"));
      sessionStorage.removeItem("tollgate-continue");
      const messages = texts.map(({ role, text }) => (role === "user" ? { role, text, images: [] } : { role, text, thinking: "", calls: [] }));
      this.restore({ at: Date.now(), protocol, system, columns: [{ model, messages }] });
      return true;
    } catch { return false; }
  },
};

const press = (group, chosen) => { for (const button of group) button.setAttribute("aria-pressed", String(button === chosen)); };

find("add").addEventListener("click", () => playground.add());
find("share").addEventListener("click", () => playground.share());
find("new").addEventListener("click", () => {
  if (playground.columns.some((column) => column.isBusy)) return;
  const models = playground.columns.map((column) => column.model);
  playground.clear();
  for (const model of models) playground.add(model);
  find("message").focus();
});
find("compose").addEventListener("submit", (event) => { event.preventDefault(); playground.send(); });
find("message").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); playground.send(); }
});
find("message").addEventListener("input", () => playground.show());
find("message").addEventListener("paste", (event) => {
  if (event.clipboardData.files.length && !find("image").disabled) { event.preventDefault(); playground.addImages(event.clipboardData.files); }
});
find("image").addEventListener("change", (event) => { playground.addImages([...event.target.files]); event.target.value = ""; });
for (const name of ["system", "tools"]) find(name).addEventListener("input", () => { playground.tools(); playground.show(); });
for (const input of document.querySelectorAll("input[name=protocol], [data-stream]")) input.addEventListener("change", () => playground.update());
for (const input of all("parameter")) input.addEventListener("input", () => { input.dataset.set = "1"; playground.update(); });
find("reset").addEventListener("click", () => {
  for (const input of all("parameter")) { input.value = input.defaultValue ?? ""; delete input.dataset.set; }
  playground.update();
});
for (const button of all("view")) button.addEventListener("click", () => { playground.view = button.dataset.view; press(all("view"), button); playground.show(); });
find("copy-shown").addEventListener("click", () => playground.copy(find("shown").textContent));
find("key-ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const field = document.getElementById("secret");
  const secret = field.value.trim();
  field.value = "";
  if (secret) playground.obtain(playground.use(secret));
});
document.getElementById("group")?.addEventListener("change", () => {
  if (!playground.key) for (const column of playground.columns) playground.modelChanged(column);
});
find("make-key")?.addEventListener("click", () => playground.obtain(playground.makeKey(document.getElementById("group")?.value)));
find("forget-key").addEventListener("click", () => { playground.key = null; playground.keyShown(false); document.getElementById("secret").focus(); });
find("forget-all").addEventListener("click", () => { localStorage.removeItem(KEPT); playground.list(); });
playground.begin();
