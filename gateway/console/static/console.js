// What the pages do better with a script; without one they still do their work.
"use strict";

// "/" goes to the search box, from anywhere but a field.
document.addEventListener("keydown", (event) => {
  const inField = event.target.closest("input, select, textarea, [contenteditable]");
  if (event.key !== "/" || inField || event.ctrlKey || event.metaKey || event.altKey) return;
  const box = document.querySelector("[data-search]");
  event.preventDefault();
  if (box && box.offsetParent) {
    box.focus();
    box.select();
  } else {
    location.assign("/");
  }
});

// Two times are asked for only by who wants to give them.
for (const range of document.querySelectorAll("[data-range]")) {
  const fields = range.form.querySelectorAll("[data-custom-range]");
  const show = () => {
    for (const field of fields) {
      field.hidden = range.value !== "custom";
      field.querySelector("input").disabled = field.hidden;
    }
  };
  range.addEventListener("change", show);
  show();
}

// A link names only what was asked for.
for (const form of document.querySelectorAll("form:not([method=post])")) {
  form.addEventListener("submit", () => {
    for (const field of form.querySelectorAll("input, select")) {
      // The first choice of a list is what is meant when nothing is said.
      const isDefault = field.value === "" || field.selectedIndex === 0;
      if (isDefault && !field.required) field.disabled = true;
    }
  });
}
addEventListener("pageshow", () => {
  for (const field of document.querySelectorAll("form:not([method=post]) :disabled")) {
    const hidden = field.closest("[data-custom-range][hidden]");
    if (!hidden) field.disabled = false;
  }
});

// Times in the reader's own zone, for who points at one.
document.addEventListener("mouseover", (event) => {
  const time = event.target.closest("time");
  if (time && !time.title) time.title = new Date(time.dateTime).toLocaleString();
});

// Parts that move: fetched again while somebody looks at them.
for (const part of document.querySelectorAll("[data-live]")) {
  const again = async () => {
    if (!document.hidden && !part.contains(document.activeElement)) {
      try {
        const answer = await fetch(part.dataset.live, { headers: { Accept: "text/html" } });
        if (answer.ok && !answer.redirected) part.innerHTML = await answer.text();
        part.toggleAttribute("data-stale", !answer.ok);
      } catch {
        part.toggleAttribute("data-stale", true);
      }
    }
    setTimeout(again, 2000);
  };
  setTimeout(again, 1200);
}

// Parts that the page did not wait for.
for (const part of document.querySelectorAll("[data-load]")) {
  fetch(part.dataset.load, { headers: { Accept: "text/html" } })
    .then(async (answer) => {
      if (answer.ok && !answer.redirected) part.innerHTML = await answer.text();
    })
    .catch(() => part.toggleAttribute("data-stale", true));
}

// The live tail: newest on top, bounded, to be paused; what came meanwhile is shown when it goes on.
const TAIL_ROWS_MAX = 200;
for (const tail of document.querySelectorAll("[data-tail]")) {
  const find = (name) => tail.querySelector(`[data-tail-${name}]`);
  const [state, note, rows] = [find("state"), find("note"), find("rows")];
  const [start, pause, clear] = [find("start"), find("pause"), find("clear")];
  let source = null;
  let position = "";
  tail.hidden = false;
  const show = (text, tone) => {
    state.textContent = text;
    state.className = `state ${tone}`;
  };
  const stop = (text) => {
    if (source) source.close();
    source = null;
    show(text, "warn");
    start.hidden = false;
    pause.hidden = true;
  };
  start.addEventListener("click", () => {
    source = new EventSource(`${tail.dataset.tail}?from=${encodeURIComponent(position)}`);
    if (!position) rows.replaceChildren();
    note.textContent = "";
    start.hidden = true;
    pause.hidden = clear.hidden = false;
    pause.focus();
    source.addEventListener("open", () => show(tail.dataset.tailLive, "good"));
    source.addEventListener("rows", (event) => {
      position = event.lastEventId || position;
      const fresh = document.createElement("template");
      fresh.innerHTML = event.data;
      for (const row of fresh.content.querySelectorAll(".tail-row")) {
        row.classList.add("fresh");
        rows.prepend(row);
      }
      while (rows.children.length > TAIL_ROWS_MAX) rows.lastElementChild.remove();
    });
    source.addEventListener("skipped", (event) => {
      note.textContent = `${tail.dataset.tailSkipped} ${event.data}`;
    });
    source.addEventListener("end", (event) => {
      stop(tail.dataset.tailEnded);
      note.textContent = event.data;
    });
    source.addEventListener("error", () => show("…", "warn"));
  });
  pause.addEventListener("click", () => {
    stop(tail.dataset.tailPaused);
    start.focus();
  });
  clear.addEventListener("click", () => rows.replaceChildren());
}
