// The first steps, the last of which is the first request. The stream only announces that a record was booked; the page is then
// reloaded to show it.
import { listen, reload } from "./events.js";

const steps = document.querySelector("[data-steps]");
const state = steps?.querySelector("[data-step-state]");

const shows = (page) => page.querySelector("[data-steps] .in")?.textContent;
const atFirst = shows(document);

// A request may have been booked while the connection was lost, so the page is checked again.
async function catchUp() {
  const answer = await fetch(location.href).catch(() => undefined);
  const text = answer?.ok ? await answer.text().catch(() => undefined) : undefined;
  if (text === undefined || state.textContent === steps.dataset.arrived) return;
  if (shows(new DOMParser().parseFromString(text, "text/html")) !== atFirst) location.reload();
}

if (state) {
  const live = steps.querySelector("[data-step-live]");
  live.hidden = false;
  const stream = listen(steps.dataset.live, {
    opened: (wasLost) => {
      live.classList.remove("paused");
      state.textContent = steps.dataset.waiting;
      if (wasLost) catchUp();
    },
    lost: () => {
      live.classList.add("paused");
      state.textContent = steps.dataset.lost;
    },
    heard: {
      record: (event) => {
        const { outcome } = JSON.parse(event.data);
        if (outcome !== "completed") return reload();
        stream.close();
        for (const step of steps.querySelectorAll("li")) {
          step.className = "done";
          step.removeAttribute("aria-current");
        }
        live.hidden = true;
        state.parentElement.className = "st ok";
        state.textContent = steps.dataset.arrived;
      },
    },
  });
  steps.querySelector("[data-copy]").addEventListener("click", () => {
    const copied = steps.querySelector("[data-step-copy]");
    copied.className = "done";
    copied.removeAttribute("aria-current");
    steps.querySelector("[data-step-request]").setAttribute("aria-current", "step");
  });
}
