// CFL round by round: the matrix that the server sees, the tree that grows, and the criterion that decides.

/** Does the value satisfy the rule with this threshold? */
const holds = (rule, value, eps) => rule.below ? value < eps : value >= eps;

/** The first round in which other thresholds decide otherwise than the run did; null if none (as in cfl_variants.replay). */
function replay(run, eps) {
  const born = { 0: 0 };
  for (const [t, model, was, ...values] of run.tests) {
    const due = t - born[model] >= run.rest && values.every((v, i) => holds(run.rules[i], v, eps[i]));
    if (due !== Boolean(was)) return { round: t, model, due };
    for (const s of run.splits) if (s.round === t && s.model === model) born[s.model] = born[s.new] = t;
  }
  return null;
}

/** The cosines of all rounds: differences from round to round are stored, of pairs above the diagonal, in hundredths. */
function cosines(run) {
  const bytes = unpack(run.cosines), pairs = run.groups.length * (run.groups.length - 1) / 2;
  for (let i = pairs; i < bytes.length; i++) bytes[i] += bytes[i - pairs];
  return (t) => bytes.subarray((t - 1) * pairs, t * pairs);
}

/** After round t: each client's model, the models from the top of the tree to its bottom, and since when each is. */
function tree(run, t) {
  const model = run.groups.map(() => 0), leaves = [0], born = { 0: 0 };
  for (const s of run.splits.filter((s) => s.round <= t)) {
    leaves.splice(leaves.indexOf(s.model) + 1, 0, s.new);
    for (const k of s.moved) model[k] = s.new;
    born[s.model] = born[s.new] = s.round;
  }
  return { model, leaves, born };
}

/** What happens in round t, in words. */
function sentence(run, t, eps, other) {
  const named = (models) => `model${models.length > 1 ? "s" : ""} ${list(models)}`;
  if (other && t > other.round) {
    const then = other.due ? "would have been split" : "would not have been split";
    return `Round ${t}: not known. With these thresholds model ${other.model} ${then} after round ${other.round}, and this run `
      + "went another way. What would follow can only be learned by training again.";
  }
  const tests = run.tests.filter(([round]) => round === t), before = tree(run, t - 1);
  if (other && t === other.round) {
    return `Round ${t}: here the ways part. With these thresholds model ${other.model} is ${other.due ? "" : "not "}split now; `
      + `in the run it was${other.due ? " not" : ""}. Nothing is known of what follows.`;
  }
  const cuts = run.splits.filter((s) => s.round === t);
  if (cuts.length) {
    const parts = cuts.map((s) => `model ${s.model}, ${s.size} clients: ${s.moved.length} of them go on with model ${s.new}`);
    const why = run.rules.map((r) => r.holds).join(", and ");
    return `Round ${t}: split. ${why[0].toUpperCase() + why.slice(1)}. So the server splits ${list(parts)}. `
      + `The largest cosine between the sides is ${list(cuts.map((s) => show(s.objective)))}.`;
  }
  const count = before.leaves.length, clauses = new Map();
  for (const [, model, , ...values] of tests) {
    const age = t - before.born[model], fails = run.rules.findIndex((r, i) => !holds(r, values[i], eps[i]));
    const key = age < run.rest ? "young" : fails;
    if (!clauses.has(key)) clauses.set(key, { models: [], values: [], age });
    clauses.get(key).models.push(model);
    clauses.get(key).values.push(values[fails]);
  }
  const texts = [...clauses].map(([key, { models, values, age }]) => {
    if (key === "young") return `${named(models)}: ${age} round${age > 1 ? "s" : ""} old, may not be split before ${run.rest}`;
    if (key < 0) return `${named(models)}: due, but a split would leave a client alone`;
    const rule = run.rules[key], nearest = rule.below ? Math.min(...values) : Math.max(...values);
    return `${named(models)}: ${rule.fails} (${show(nearest)}, a split needs ${rule.below ? "less than" : "at least"} ${show(eps[key])})`;
  });
  return `Round ${t}: ${count} model${count > 1 ? "s" : ""}, no split. ${texts.join("; ")}.`.replace(". model", ". Model");
}

/** The same for a reader who knows nothing of criteria: how many models, and how often they are right. */
function plain(run, t) {
  const words = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight"];
  const models = 1 + run.splits.filter((s) => s.round <= t).length, last = run.scores.findLast(([r]) => r <= t);
  const right = last ? Math.round(100 * last.slice(1).reduce((a, b) => a + b) / (last.length - 1)) : null;
  if (run.splits.some((s) => s.round <= t && t < s.round + 8)) return `Round ${t}: the server splits the clients. Now it keeps ${words[models] ?? models} models.`;
  const kept = models < 2 ? "one model for all" : `${words[models] ?? models} models`;
  return `Round ${t}: ${kept}${last ? `, right ${right} times in 100` : ""}.`;
}

function live(figure, run) {
  const K = run.groups.length, T = run.rounds, at = cosines(run), { left, right } = run.plot;
  const own = run.rules.map((r) => r.eps), eps = [...own];
  let t = 1, byGroup = false, other = null, playing = 0;
  const place = run.groups.map((_, k) => k); // where each client's row is now
  const x = (round) => left + (right - left) * (round - 1) / (T - 1);

  // controls
  const says = figure.querySelector(".says") ?? make("output", { className: "says", "aria-live": "polite" });
  const round = slider("round", [1, T, 1], t, (v) => { stop(); go(v); }, (v) => `${v} of ${T}`);
  const play = make("button", { type: "button", onclick: () => playing ? stop() : run_() });
  const sliders = run.rules.map((r, i) => slider(`Threshold ${r.symbol}`, r.range, r.eps, (v) => { eps[i] = v; decide(); }, show));
  const reset = make("button", { type: "button", onclick: () => { eps.splice(0, eps.length, ...own); sliders.forEach((s, i) => s.set(own[i])); decide(); } }, "Thresholds of the run");
  const view = choice("Rows", [["server", "as the server sees them"], ["group", "by true group"]], "server", (v) => { byGroup = v === "group"; glide(); });
  round.label.style.flex = "4 1 14rem";
  const room = figure.querySelector(".room");
  if (room) room.prepend(play, round.label);
  else figure.prepend(make("div", { className: "controls" }, play, round.label), says);
  const matrix = figure.querySelector(".matrix");
  if (!run.front) matrix.parentNode.append(make("div", { className: "controls" }, view.label), make("div", { className: "controls" }, ...sliders.map((s) => s.label), reset));

  // the matrix: a canvas in the place of the picture
  const canvas = make("canvas", { role: "img", "aria-label": matrix.querySelector("svg").getAttribute("aria-label") });
  canvas.width = canvas.height = 640;
  matrix.querySelector("svg").style.display = "none";
  matrix.append(canvas);
  const pen = canvas.getContext("2d");

  function target() {
    const { model, leaves } = tree(run, t), key = byGroup ? run.groups : model.map((m) => leaves.indexOf(m));
    const order = [...place.keys()].sort((a, b) => key[a] - key[b] || a - b), to = [];
    order.forEach((k, i) => { to[k] = i; });
    return { to, model, order, trained: tree(run, t - 1).model };
  }

  function paint({ model, order, trained }, moving) {
    const css = getComputedStyle(figure), ink = css.color, plus = css.getPropertyValue("--plus"), minus = css.getPropertyValue("--minus"), itself = css.getPropertyValue("--line"), zero = css.getPropertyValue("--zero");
    const edge = 40, cell = (640 - edge) / K, now = at(t), dark = other && t > other.round ? 0.15 : 1;
    pen.clearRect(0, 0, 640, 640);
    for (let i = 0, p = 0; i < K; i++) {
      for (let j = i; j < K; j++) {
        const value = i === j ? 1 : now[p++] / 100;
        for (const [row, column] of [[i, j], [j, i]]) {
          const square = [edge + place[column] * cell, edge + place[row] * cell, cell - 1, cell - 1];
          pen.globalAlpha = dark;
          pen.fillStyle = zero; // in the dark, what is near zero keeps its cells
          pen.fillRect(...square);
          pen.fillStyle = i === j ? itself : value > 0 ? plus : minus;
          pen.globalAlpha = Math.abs(value) * dark * (trained[i] === trained[j] ? 1 : 0.3);
          pen.fillRect(...square);
          if (i === j) break;
        }
      }
    }
    pen.globalAlpha = 1;
    pen.textBaseline = "middle";
    pen.textAlign = "center";
    pen.font = `27px ${css.fontFamily}`;
    for (let a = 0; a < K;) { // runs of rows with one label
      const label = (k) => byGroup ? run.groups[k] : model[k];
      let b = a;
      while (b < K && label(order[b]) === label(order[a])) b++;
      const begin = edge + a * cell, size = (b - a) * cell - 1, number = label(order[a]);
      pen.fillStyle = byGroup ? css.getPropertyValue(`--g${number % 10}`) : ink;
      pen.fillRect(edge - 7, begin, 5, size);
      pen.fillRect(begin, edge - 7, size, 5);
      pen.fillStyle = ink;
      // models have numbers, true groups letters
      const name = byGroup ? "ABCDEFGHIJ"[number] : size < 120 ? number : run.front && b - a === K ? `${K} clients` : `model ${number}`;
      if (size > 24) {
        pen.fillText(name, begin + size / 2, edge - 22);
        pen.translate(edge - 22, begin + size / 2);
        if (name.length > 2) pen.rotate(-Math.PI / 2);
        pen.fillText(name, 0, 0);
        pen.resetTransform();
      }
      if (!moving && a && !byGroup) { pen.fillRect(edge, begin - 2, 640, 2); pen.fillRect(begin - 2, edge, 2, 640); }
      a = b;
    }
    if (dark < 1) { pen.font = `600 34px ${css.fontFamily}`; pen.fillText("not known", 340, 340); }
  }

  let gliding = 0;
  function glide() { // rows move a fifth of their way in each frame
    const goal = target();
    cancelAnimationFrame(gliding);
    const step = () => {
      let far = 0;
      goal.to.forEach((to, k) => {
        place[k] = calm || Math.abs(to - place[k]) < 0.02 ? to : place[k] + (to - place[k]) * 0.2;
        far = Math.max(far, Math.abs(to - place[k]));
      });
      paint(goal, far > 0);
      if (far > 0) gliding = requestAnimationFrame(step);
    };
    step();
  }

  const scored = run.scores, cursor = figure.querySelector(".cursor"), past = figure.querySelector(".past"), unknown = figure.querySelector(".unknown");
  const values = figure.querySelectorAll("[data-group]"), ends = figure.querySelectorAll("[data-from]");
  const limits = figure.querySelectorAll("[data-rule]");
  const ghost = past.cloneNode(true); // pale, what is to come
  ghost.querySelectorAll("text").forEach((each) => each.remove());
  ghost.setAttribute("class", "ghost");
  ghost.setAttribute("width", right + 4);
  past.before(ghost);
  function go(to) {
    t = to;
    round.set(t);
    cursor.setAttribute("transform", `translate(${x(t)} 0)`);
    past.setAttribute("width", other ? Math.min(x(t), x(other.round)) : x(t) + 1);
    unknown.setAttribute("x", other ? x(other.round) : 0);
    unknown.setAttribute("width", other ? right - x(other.round) : 0);
    const last = scored.findLast(([r]) => r <= t), known = !other || t <= other.round;
    values.forEach((v) => { v.textContent = last && known ? show(last[1 + Number(v.dataset.group)]) : "\u2013"; });
    ends.forEach((e) => { e.style.visibility = t >= Number(e.dataset.from) && known ? "" : "hidden"; });
    const text = run.front ? plain(run, t) : sentence(run, t, eps, other);
    if (says.textContent !== text) says.textContent = text;
    glide();
  }

  function decide() { // the thresholds have moved
    const same = eps.every((e, i) => e === own[i]);
    other = same ? null : replay(run, eps);
    limits.forEach((line) => {
      const i = Number(line.dataset.rule), rule = run.rules[i], { top, bottom } = rule.plot, [low, high] = rule.range;
      const share = (eps[i] - low) / (high - low);
      line.setAttribute("transform", `translate(0 ${bottom - (bottom - top) * Math.max(0, Math.min(1, share))})`);
      line.querySelector("text").textContent = `${rule.symbol} = ${show(eps[i])}`;
    });
    reset.hidden = same;
    go(t);
  }

  // play: twelve rounds a second; a reader who wants no motion goes from cut to cut
  const label = () => { play.textContent = calm ? "Next split" : playing ? "Pause" : "Play"; };
  function run_() {
    const from = t >= T ? 1 : t;
    if (calm) { go(run.splits.map((s) => s.round).find((r) => r > from) ?? T); return; }
    const begin = performance.now();
    says.setAttribute("aria-live", "off");
    const step = (now) => {
      const next = Math.min(T, from + Math.floor(Math.max(0, now - begin) / 85));
      if (next !== t) go(next);
      if (next < T) playing = requestAnimationFrame(step); else stop();
    };
    playing = requestAnimationFrame(step);
    label();
  }
  function stop() { cancelAnimationFrame(playing); playing = 0; says.setAttribute("aria-live", "polite"); label(); }

  // a finger or the mouse on the curves chooses the round, too
  const chart = figure.querySelector(".chart");
  const point = (e) => {
    const box = chart.getBoundingClientRect(), at = (e.clientX - box.left) / box.width * chart.viewBox.baseVal.width;
    stop();
    go(Math.max(1, Math.min(T, Math.round(1 + (at - left) / (right - left) * (T - 1)))));
  };
  chart.style.touchAction = "pan-y";
  chart.onpointerdown = (e) => { chart.setPointerCapture(e.pointerId); point(e); };
  chart.onpointermove = (e) => { if (e.buttons) point(e); };
  new MutationObserver(() => glide()).observe(document.documentElement, { attributeFilter: ["data-theme", "theme"] });
  addEventListener("beforeprint", () => { stop(); go((run.splits.at(-1)?.round ?? T + 1) - 1); }); // on paper, what leads to the last split
  label();
  decide();
  if (run.front && !calm) { // once, when the reader comes to it, and has not moved anything
    const seen = new IntersectionObserver(([entry]) => {
      if (!entry.isIntersecting) return;
      seen.disconnect();
      if (t === 1 && !playing) run_();
    }, { threshold: 0.5 });
    seen.observe(matrix);
  }
}

start("split", live);
