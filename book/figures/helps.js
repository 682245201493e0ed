// Who helps whom: measured gains, distances that were predicted from the models, and DBSCAN at the reader's radius.

/** DBSCAN with min_samples 2: clusters are chains of clients within eps; who has no neighbour is a cluster alone. */
function dbscan(distance, eps) {
  const cluster = distance.map(() => -1);
  let count = 0;
  distance.forEach((_, k) => {
    if (cluster[k] >= 0) return;
    const reached = [k];
    cluster[k] = count;
    while (reached.length) distance[reached.pop()].forEach((d, j) => { if (d <= eps && cluster[j] < 0) { cluster[j] = count; reached.push(j); } });
    count += 1;
  });
  return cluster;
}

/** The mean measured gain of pairs in one cluster, and of pairs of two; null where nothing was measured. */
function meanGains(gains, cluster) {
  const sums = [[0, 0], [0, 0]];
  gains.forEach((row, i) => row.forEach((g, j) => { if (i < j && g !== null) { const s = sums[Number(cluster[i] !== cluster[j])]; s[0] += g; s[1] += 1; } }));
  return sums.map(([sum, n]) => n ? sum / n : null);
}

/** How many clients each cluster has, the largest first. */
const sizes = (cluster) => Array.from({ length: Math.max(...cluster) + 1 }, (_, c) => cluster.filter((v) => v === c).length).sort((a, b) => b - a);

/** The radius from which on all clients are one chain: the longest edge of the shortest tree. */
function joined(distance) {
  const far = distance[0].map((d, j) => j ? d : -1);
  let longest = 0;
  for (let n = 1; n < far.length; n++) {
    const next = far.reduce((best, d, j) => d >= 0 && (best < 0 || d < far[best]) ? j : best, -1);
    longest = Math.max(longest, far[next]);
    distance[next].forEach((d, j) => { if (far[j] >= 0) far[j] = Math.min(far[j], d); });
    far[next] = -1;
  }
  return longest;
}

/** Colours: those who are alone are grey. */
function colours(cluster) {
  const many = [...new Set(cluster)].filter((c) => cluster.filter((v) => v === c).length > 1), palette = [3, 2, 5, 7, 4, 8, 9, 0, 1];
  return cluster.map((c) => `var(--g${many.includes(c) ? palette[many.indexOf(c) % 9] : 6})`);
}

function sentence(name, eps, cluster, [inside, across], limit) {
  const all = sizes(cluster), many = all.filter((n) => n > 1), alone = all.length - many.length, signed = (v) => (v > 0 ? "+" : "") + show(v);
  const count = (n, one) => `${n} ${one}${n === 1 ? "" : "s"}`;
  const found = eps >= limit ? `all ${cluster.length} clients are one cluster` : `${count(many.length, "cluster")}${many.length ? ` of ${list(many)} clients` : ""}, and ${count(alone, "client")} alone`;
  const gain = inside === null ? "No measured pair is together." : `Measured pairs in one cluster gain ${signed(inside)} on average${across === null ? "" : `, pairs of two clusters ${signed(across)}`}.`;
  return `By ${name}, ε = ${show(eps)}: ${found}. ${gain} From ε = ${show(limit)} on all clients are one cluster: a chain of neighbours is enough, however far its ends are apart.`;
}

function live(figure, data) {
  let name = Object.keys(data.predicted)[0], eps = data.eps;
  const says = make("output", { className: "says", "aria-live": "polite" }), marks = figure.querySelectorAll("[data-client]"), K = data.gains.length;
  const parts = Object.fromEntries(["edges", "gains", "distances"].map((part) => [part, figure.querySelector(`[data-part="${part}"]`)]));
  const most = Math.max(...data.gains.flat().map(Math.abs));
  const draw = oncePerFrame(() => {
    const { distance, places } = data.predicted[name], cluster = dbscan(distance, eps), tint = colours(cluster), far = Math.max(...distance.flat());
    const order = [...cluster.keys()].sort((a, b) => cluster[a] - cluster[b] || a - b);
    marks.forEach((mark, k) => { mark.setAttribute("transform", `translate(${places[k].join(" ")})`); mark.setAttribute("fill", tint[k]); });
    let d = "";
    for (let i = 0; i < K; i++) for (let j = i + 1; j < K; j++) if (distance[i][j] <= eps) d += `M${places[i].join(" ")}L${places[j].join(" ")}`;
    parts.edges.setAttribute("d", d);
    parts.gains.innerHTML = squares(order.map((i) => order.map((j) => data.gains[i][j] / most)));
    parts.distances.innerHTML = squares(order.map((i) => order.map((j) => 1 - distance[i][j] / far)), "currentColor");
    const text = sentence(name, eps, cluster, meanGains(data.gains, cluster), joined(distance));
    if (says.textContent !== text) says.textContent = text;
  });
  const range = () => { const { step } = data.predicted[name]; return [0, Number((200 * step).toFixed(4)), step]; };
  const box = make("div");
  const place = () => box.replaceChildren(slider("radius ε of DBSCAN", range(), eps, (v) => { eps = v; draw(); }, (v) => show(v)).label);
  const names = Object.keys(data.predicted);
  const which = choice("Distance", names.map((n) => [n, n]), name, (v) => { name = v; eps = data.predicted[v].eps; place(); draw(); });
  box.style.flex = "4 1 14rem";
  figure.prepend(make("div", { className: "controls" }, ...(names.length > 1 ? [which.label] : []), box), says);
  place();
  draw();
}

start("helps", live);
