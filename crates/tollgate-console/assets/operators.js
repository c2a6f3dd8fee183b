// Pages of operators: a file fills the field for a price list or catalog, and jobs are followed. Both pages work without it.
import { listen, reload } from "./events.js";

for (const form of document.querySelectorAll("[data-pick-file]")) {
  const area = form.querySelector("textarea[name=file]");
  if (!area) continue;
  const label = document.createElement("label");
  label.className = "btn small";
  label.textContent = form.dataset.pickFile;
  const input = document.createElement("input");
  input.type = "file";
  input.className = "vh";
  label.append(input);
  area.after(label);
  input.addEventListener("change", async () => {
    const file = input.files[0];
    if (!file) return;
    area.value = await file.text();
    const source = form.querySelector("select[name=source]");
    if (source && source.value === "built_in") source.value = file.name.endsWith(".json") ? "litellm" : "csv";
  });
}

// Nothing can be imported until a price is picked.
for (const form of document.querySelectorAll("form[data-picks]")) {
  const submit = form.querySelector("button[type=submit]");
  const check = () => { submit.disabled = !form.querySelector("input[name=apply]:checked"); };
  form.addEventListener("change", check);
  check();
}

// An image fills the field of a setting as a data: URL.
for (const part of document.querySelectorAll("[data-pick-image]")) {
  const area = part.querySelector("textarea[name=value]");
  if (!area) continue;
  const label = document.createElement("label");
  label.className = "btn small";
  label.textContent = part.dataset.pickImage;
  const input = document.createElement("input");
  input.type = "file";
  input.accept = "image/png,image/jpeg,image/webp,image/gif,image/svg+xml";
  input.className = "vh";
  label.append(input);
  area.after(label);
  input.addEventListener("change", () => {
    const file = input.files[0];
    if (!file) return;
    const reader = new FileReader();
    reader.addEventListener("load", () => { area.value = reader.result; });
    reader.readAsDataURL(file);
  });
}

// Shows the progress of a job until it has ended, then its result. The browser reopens a lost connection.
const job = document.querySelector("[data-job-events]");
if (job) {
  const meter = job.querySelector("[data-meter]");
  const step = job.querySelector("[data-step]");
  const live = job.querySelector("[data-live]");
  const steps = JSON.parse(job.dataset.steps);
  const number = new Intl.NumberFormat(document.documentElement.lang);
  const say = (text, isLost) => {
    live.hidden = false;
    live.classList.toggle("paused", isLost);
    live.textContent = text;
  };
  const events = listen(job.dataset.jobEvents, {
    opened: () => say(live.dataset.on, false),
    lost: () => say(live.dataset.lost, true),
    heard: {
      job: (event) => {
        const { state, progress } = JSON.parse(event.data);
        if (["done", "failed", "cancelled"].includes(state)) {
          events.close();
          reload(() => say(live.dataset.lost, true));
          return;
        }
        if (!progress) return;
        const { done, total } = progress;
        step.textContent = `${steps[progress.step] ?? progress.step} ${number.format(done)}${total ? ` / ${number.format(total)}` : ""}`;
        if (total) meter.setAttribute("width", `${Math.min(100, Math.round(done * 100 / total))}%`);
      },
    },
  });
}
