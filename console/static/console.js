// Improvements of the pages by a script; without it all pages still work, except the live tail and moving charts.
"use strict";

// "/" goes to the search box, except inside a field.
document.addEventListener("keydown", (event) => {
  const inField = event.target.closest("input, select, textarea, [contenteditable]");
  if (event.key !== "/" || inField || event.ctrlKey || event.metaKey || event.altKey) return;
  const box = [...document.querySelectorAll("[data-search]")].find((each) => each.offsetParent);
  event.preventDefault();
  if (box) {
    box.focus();
    box.select();
  } else {
    location.assign("/");
  }
});

// Strips of links that are wider than the screen begin at the open page.
for (const link of document.querySelectorAll("nav a[aria-current]")) {
  const strip = link.parentElement;
  strip.scrollLeft = link.offsetLeft - strip.offsetLeft - (strip.clientWidth - link.offsetWidth) / 2;
}

// The fields for two times are shown only for the choice "Between two times".
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

// Empty and default values are left out of the URL.
for (const form of document.querySelectorAll("form:not([method=post], [data-tail-form], [data-upload])")) {
  form.addEventListener("submit", () => {
    for (const field of form.querySelectorAll("input, select")) {
      // The first choice of a list is its default.
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

// Copy buttons, where the browser lets a page write to the clipboard: over HTTPS and on this machine.
if (navigator.clipboard) {
  for (const button of document.querySelectorAll("[data-copy], [data-copy-line]")) {
    const label = button.textContent;
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(button.dataset.copy ?? button.previousElementSibling.textContent);
      button.textContent = button.dataset.copied;
      setTimeout(() => (button.textContent = label), 1500);
    });
  }
}

// The upload of a schema: the page is shown again with it.
for (const form of document.querySelectorAll("[data-upload]")) {
  const said = form.querySelector("[data-upload-said]");
  form.hidden = false;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const [file] = form.querySelector("input[type=file]").files;
    try {
      if (file.size > Number(form.dataset.uploadMax)) throw new Error(`${file.size} > ${form.dataset.uploadMax}`);
      const answer = await fetch(`/schemas?name=${encodeURIComponent(file.name)}`, { method: "POST", body: file });
      const told = await answer.json();
      if (!answer.ok) throw new Error(told.message);
      location.assign(`${form.dataset.uploadPage}&view=schema&schema=${told.schema}`);
    } catch (error) {
      said.textContent = error.message;
      said.hidden = false;
    }
  });
}

// Times come in UTC. They are shown, and typed, in the browser's zone, or in UTC where the reader chose that; the other one is
// the tooltip. URLs and answers always have UTC.
const BROWSER_ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone || "local";
const keptZone = () => {
  try {
    return localStorage.getItem("zone");
  } catch {
    return null; // a browser without storage
  }
};
const inUtc = BROWSER_ZONE === "UTC" || keptZone() === "utc";
const utcText = (moment) => moment.toISOString().replace("T", " ").replace("Z", "");
const localText = (moment) => utcText(new Date(moment.getTime() - moment.getTimezoneOffset() * 60000));
const showZone = () => {
  if (inUtc) return;
  for (const each of document.querySelectorAll("time:not([title]), title[data-time]")) {
    const moment = new Date(each.dateTime || each.dataset.time);
    if (Number.isNaN(moment.getTime())) continue;
    if (each.dateTime) each.title = `${utcText(moment)} UTC`;
    else delete each.dataset.time;
    each.textContent = each.textContent.replace(utcText(moment), localText(moment));
  }
  for (const name of document.querySelectorAll("[data-zone]")) {
    if (name.textContent !== BROWSER_ZONE) name.textContent = BROWSER_ZONE;
  }
};
document.addEventListener("mouseover", (event) => {
  const time = event.target.closest("time");
  if (time && !time.title) time.title = new Date(time.dateTime).toLocaleString();
});
showZone();
if (!inUtc) {
  new MutationObserver(showZone).observe(document.body, { childList: true, subtree: true });
  for (const field of document.querySelectorAll("input[type=datetime-local]")) {
    const given = new Date(`${field.defaultValue}Z`);
    // A field that the browser filled again has what was typed.
    if (field.value === field.defaultValue && !Number.isNaN(given.getTime())) {
      field.value = localText(given).replace(" ", "T").slice(0, field.defaultValue.length);
    }
    field.form.addEventListener("formdata", (event) => {
      const typed = event.formData.get(field.name);
      // As many digits as were typed: a minute as the end of a window means all of it.
      if (typed) event.formData.set(field.name, new Date(typed).toISOString().slice(0, typed.length));
    });
  }
}
for (const button of document.querySelectorAll("[data-zone-switch]")) {
  button.hidden = BROWSER_ZONE === "UTC";
  if (!inUtc) button.textContent = button.dataset.zoneOther;
  button.addEventListener("click", () => {
    try {
      localStorage.setItem("zone", inUtc ? "browser" : "utc");
    } catch {
      return; // a browser without storage
    }
    location.reload();
  });
}

// Changing parts: fetched again while the page is visible.
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

// Parts that are loaded after the page. Their places always end: with the part, or with the word that there is no answer.
const LOAD_MILLIS_MAX = 20000;
for (const part of document.querySelectorAll("[data-load]")) {
  fetch(part.dataset.load, { headers: { Accept: "text/html" }, signal: AbortSignal.timeout(LOAD_MILLIS_MAX) })
    .then(async (answer) => {
      if (!answer.ok || answer.redirected) throw new Error(`status ${answer.status}`);
      part.innerHTML = await answer.text();
    })
    .catch(() => {
      for (const place of part.querySelectorAll(".skeleton")) {
        const said = document.createElement("span");
        said.className = "quiet";
        said.textContent = part.dataset.loadFailed;
        place.replaceWith(said);
      }
    });
}

// A result with room left: the script continues until the page is full, everything was searched, or the user stops it. Rows
// of a step are appended; its summary replaces the one of the step before.
const STEP_RETRY_COUNT_MAX = 10;
const STEP_RETRY_MILLIS = 1000;
for (const result of document.querySelectorAll("[data-result]")) {
  const part = (name, of = result) => of.querySelector(`[data-part=${name}]`);
  const [run, state] = [result.querySelector("[data-run]"), result.querySelector("[data-run-state]")];
  const [stop, start] = [result.querySelector("[data-run-stop]"), result.querySelector("[data-run-start]")];
  let running = null;
  const show = (text, tone) => {
    state.textContent = text;
    state.className = `state ${tone}`;
    stop.hidden = !running;
    start.hidden = Boolean(running);
  };
  const wait = (millis) => new Promise((resume) => setTimeout(resume, millis));
  const seen = async () => {
    while (document.hidden) {
      await new Promise((resume) => document.addEventListener("visibilitychange", resume, { once: true }));
    }
  };
  const take = (step) => {
    const rows = step.querySelectorAll(".messages tbody tr");
    const table = part("rows").querySelector(".messages tbody");
    if (table) table.append(...rows);
    else part("rows").replaceChildren(...part("rows", step).childNodes);
    const count = part("banner", step).querySelector("[data-count]")?.textContent;
    // If matches may be missing from one step, they may be missing from the whole. That step's banner gives the reason.
    const wasPartial = part("banner").querySelector(".banner.warn");
    if (!wasPartial || part("banner", step).querySelector(".banner.warn:not([data-partial-before])")) {
      part("banner").replaceChildren(...part("banner", step).childNodes);
    } else if (count) wasPartial.querySelector("[data-count]").textContent = count;
    if (part("problems", step).children.length) part("problems").replaceChildren(...part("problems", step).childNodes);
    const details = part("progress").querySelector("details");
    const wasOpen = details && details.open;
    part("progress").replaceChildren(...part("progress", step).childNodes);
    const fresh = part("progress").querySelector("details");
    if (fresh && wasOpen) fresh.open = true;
    part("pager").replaceChildren(...part("pager", step).childNodes);
  };
  const goOn = async () => {
    const mine = new AbortController();
    running = mine;
    run.hidden = false;
    show(state.dataset.running, "info");
    let failures = 0;
    let pauseMillis = 0;
    let link;
    while (running === mine && (link = part("pager").querySelector("[data-goes-on]"))) {
      // Leaves about half of the time to other searches.
      await wait(pauseMillis);
      await seen();
      const beginMillis = performance.now();
      const have = result.querySelectorAll(".messages tbody tr").length;
      try {
        const answer = await fetch(`${link.href}&part=result&have=${have}`, {
          headers: { Accept: "text/html" },
          signal: mine.signal,
        });
        if (answer.redirected || (!answer.ok && answer.status !== 429 && answer.status !== 503)) failures = Infinity;
        if (!answer.ok || answer.redirected) throw new Error(`status ${answer.status}`);
        const step = document.createElement("template");
        step.innerHTML = await answer.text();
        if (running !== mine) return;
        take(step.content);
        failures = 0;
        pauseMillis = performance.now() - beginMillis;
      } catch {
        if (running !== mine) return;
        failures += 1;
        if (failures > STEP_RETRY_COUNT_MAX) {
          running = null;
          show(state.dataset.failed, "bad");
          return;
        }
        await wait(STEP_RETRY_MILLIS);
      }
    }
    if (running === mine) {
      running = null;
      run.hidden = true;
    }
  };
  stop.addEventListener("click", () => {
    running.abort();
    running = null;
    show(state.dataset.stopped, "warn");
    start.focus();
  });
  start.addEventListener("click", () => {
    goOn();
    stop.focus();
  });
  if (part("pager").querySelector("[data-goes-on]")) goOn();
}

// The live tail: newest on top, limited in rows. After a pause, it shows the messages that arrived meanwhile. Its tags are in
// the page's URL; with other tags it continues from its position.
const TAIL_ROWS_MAX = 200;
for (const tail of document.querySelectorAll("[data-tail]")) {
  const find = (name) => tail.querySelector(`[data-tail-${name}]`);
  const [state, note, passed, rows] = [find("state"), find("note"), find("passed"), find("rows")];
  const [form, tag, start, pause, clear] = [find("form"), find("tag"), find("start"), find("pause"), find("clear")];
  let source = null;
  let position = "";
  let passedCount = 0;
  let said = {};
  tail.hidden = false;
  const show = (text, tone) => {
    state.textContent = text;
    state.className = `state ${tone}`;
  };
  const say = (kind, text) => {
    said[kind] = text;
    note.textContent = Object.values(said)
      .filter(Boolean)
      .join(" · ");
  };
  const stop = (text) => {
    if (source) source.close();
    source = null;
    show(text, "warn");
    start.hidden = false;
    pause.hidden = true;
  };
  const url = () => {
    const asked = new URLSearchParams({ from: position });
    if (tag.value.trim()) asked.set("tag", tag.value.trim());
    return `${tail.dataset.tail}?${asked}`;
  };
  const name = () => {
    const address = new URL(location.href);
    if (tag.value.trim()) address.searchParams.set("tag", tag.value.trim());
    else address.searchParams.delete("tag");
    history.replaceState(null, "", address);
  };
  // The same URL as JSON gives the reason why there is no stream.
  const refused = async (asked) => {
    stop(tail.dataset.tailEnded);
    try {
      const answer = await fetch(asked, { headers: { Accept: "application/json" } });
      if (answer.ok) await answer.body.cancel();
      else say("end", (await answer.json()).message);
    } catch {
      say("end", "…");
    }
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (source) source.close();
    name();
    const asked = url();
    const mine = new EventSource(asked);
    source = mine;
    if (!position) rows.replaceChildren();
    said = {};
    note.textContent = passed.textContent = "";
    passedCount = 0;
    start.hidden = true;
    pause.hidden = clear.hidden = false;
    if (document.activeElement !== tag) pause.focus();
    mine.addEventListener("open", () => {
      say("partial", ""); // a new stream sends its missing parts again
      show(tail.dataset.tailLive, "good");
    });
    mine.addEventListener("partial", (event) => {
      const { shards, unfollowedQueueCount, busy } = JSON.parse(event.data);
      const lacks = [];
      if (shards.length) lacks.push(`${tail.dataset.tailMissing} ${shards.join(", ")}`);
      if (unfollowedQueueCount) lacks.push(`${tail.dataset.tailUnfollowed} ${unfollowedQueueCount}`);
      if (busy) lacks.push(tail.dataset.tailBusy);
      say("partial", lacks.join(" · "));
    });
    mine.addEventListener("rows", (event) => {
      position = event.lastEventId || position;
      const fresh = document.createElement("template");
      fresh.innerHTML = event.data;
      for (const row of fresh.content.querySelectorAll(".tail-row")) {
        row.classList.add("fresh");
        rows.prepend(row);
      }
      while (rows.children.length > TAIL_ROWS_MAX) rows.lastElementChild.remove();
    });
    mine.addEventListener("passed", (event) => {
      position = event.lastEventId || position;
      passedCount += Number(event.data);
      if (passedCount) passed.textContent = `${tail.dataset.tailOthers} ${passedCount}`;
    });
    mine.addEventListener("skipped", (event) => {
      say("skipped", `${tail.dataset.tailSkipped} ${event.data}`);
    });
    mine.addEventListener("end", (event) => {
      stop(tail.dataset.tailEnded);
      say("end", event.data);
    });
    mine.addEventListener("error", () => {
      if (mine !== source) return;
      if (mine.readyState === EventSource.CLOSED) refused(asked);
      else show("…", "warn");
    });
  });
  pause.addEventListener("click", () => {
    stop(tail.dataset.tailPaused);
    start.focus();
  });
  clear.addEventListener("click", () => rows.replaceChildren());
}
