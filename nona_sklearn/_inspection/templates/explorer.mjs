// The page of an explorer: colours, the slider, names, lists, and the report of a row.

const MOST_HOVERED = 8 // columns beside the pointer
const MOST_CLASSES = 20 // of a legend
const SVG = "http://www.w3.org/2000/svg"
const MINUS = "\u2212"

const DIRECTIONS = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g // they turn texts around

export default ({rows, behind, links, stored, queries, colors, about}) => {
  const data = rows.data
  const find = id => document.getElementById(id)
  const {labels, columns, nNeighbors, order, words, shape, limits} = about
  const places = new Map(Array.from(order, (row, place) => [row, place]))

  // -- elements, whose texts are escaped by the browser --

  function make(tag, attributes = {}, ...children) {
    const made = document.createElement(tag)
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value)
    made.append(...children)
    return made
  }

  function makeShape(tag, attributes, ...children) { // of a picture
    const made = document.createElementNS(SVG, tag)
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value)
    made.append(...children)
    return made
  }

  const own = text => make("bdi", {}, text) // of a user: it turns no text around it
  const fill = (text, values) => text.replace(/\{(\w+)\}/g, (_, name) => values[name])
  const sum = values => values.reduce((total, value) => total + value, 0)

  // -- numbers and texts, as formatting.py writes them --

  function amount(value, place = about.decimals) { // of the target's unit, a given one by default
    if (Number.isNaN(value)) return "unknown"
    if (labels !== null) return labels[value].replace(DIRECTIONS, "")
    if (place > limits.mostDecimals) return value.toPrecision(3).replace("-", MINUS)
    const [decimals, step] = [Math.max(0, place), 10 ** Math.max(0, -place)]
    const digits = {minimumFractionDigits: decimals, maximumFractionDigits: decimals, roundingMode: "halfEven"}
    const text = (step > 1 ? step * halfEven(value / step) : value).toLocaleString("en-US", digits)
    return /[1-9]/.test(text) ? text.replace("-", MINUS) : text.replace("-", "") // there is no negative 0
  }

  function halfEven(value) { // as Python rounds
    const near = Math.round(value)
    return near - value === 0.5 && near % 2 !== 0 ? near - 1 : near
  }

  const computed = (value, row) => amount(value, data.place?.[row]) // by the interval of the row

  function feature(value) {
    if (typeof value === "string") return value
    if (Number.isNaN(value)) return "missing"
    const {digits, leastDecimals, mostDecimals, separated} = limits
    const [size, whole] = [Math.abs(value), Number.isInteger(value)]
    const decimals = whole ? 0 : Math.max(leastDecimals, digits - 1 - Math.floor(Math.log10(size)))
    const text = size >= 1e15 || decimals > 2 * mostDecimals ? String(Number(value.toPrecision(digits - 1)))
      : value.toLocaleString("en-US", {maximumFractionDigits: decimals, useGrouping: size >= separated})
    return text.replace(/e-(\d)$/, "e-0$1").replaceAll("-", MINUS)
  }

  function share(weight) {
    if (weight > 0 && weight < limits.leastShare) return "<0.1%"
    return `${(100 * weight).toFixed(weight > 0 && weight < 0.095 ? 1 : 0)}%`
  }

  // -- the report of a row --

  function linesOf(row) { // the rows behind its prediction
    const lines = []
    for (let place = row * nNeighbors; place < (row + 1) * nNeighbors; place++) {
      if (behind.data.row[place] < 0) continue
      const differs = [0, 1, 2].map(i => behind.data[`differs${i}`]?.[place])
      const [weight, adjusted] = [behind.data.weight[place], behind.data.adjusted[place]]
      const target = data.target[behind.data.row[place]]
      lines.push({
        row: behind.data.row[place],
        weight,
        target,
        adjusted: adjusted === Math.fround(target) ? target : adjusted,
        contribution: weight * adjusted,
        differs: new Set(differs),
      })
    }
    return lines
  }

  function othersOf(row) { // all other rows together, if they have any weight
    const [weight, target, adjusted, contribution] =
      ["Weight", "Target", "Adjusted", "Contribution"].map(name => data[`others${name}`][row])
    return weight > 0 ? [{weight, target, adjusted, contribution, differs: new Set()}] : []
  }

  function cell(content, marks = []) { // numbers stay on one line
    const text = content.textContent ?? content
    const names = [...marks, /[\d%]$/.test(text) ? "number" : "", text.length > limits.long ? "text" : ""].filter(Boolean)
    return make("td", names.length > 0 ? {class: names.join(" ")} : {}, content)
  }

  function value(column, row) { // the content of a cell
    const found = data[`f${column}`][row]
    return about.pictures ? make("img", {src: found, alt: ""}) : own(feature(found))
  }

  const line = (name, cells) => make("tr", {}, make("th", {scope: "row"}, name), ...cells)

  function weights(lines, others) {
    const largest = Math.max(...lines.map(each => each.weight))
    const cells = [...lines, ...others].map(({weight}) => cell(share(weight), ["number"]))
    lines.forEach(({weight}, i) => {
      const width = `width: ${(limits.bar * weight / largest).toFixed(1)}em`
      cells[i].append(make("span", {class: "bar", style: width}))
    })
    return cells
  }

  function targets(row, lines, others) {
    const every = [...lines, ...others]
    const write = (value, text) => cell(Number.isNaN(value) ? "" : text)
    const rounded = value => write(value, computed(value, row))
    if (labels !== null) {
      const classes = lines.map(each => cell(own(amount(each.target))))
      return [line(own(about.target), [cell(""), ...classes, ...others.map(() => cell(""))])]
    }
    const moved = every.some(each => each.adjusted !== each.target)
    return [
      line(own(about.target), [cell(""), ...lines.map(each => write(each.target, amount(each.target))), ...others.map(each => rounded(each.target))]),
      ...(moved ? [line(words.adjusted, [cell(""), ...every.map(each => rounded(each.adjusted))])] : []),
      line(words.contribution, [data.prediction[row], ...every.map(each => each.contribution)].map(rounded)),
    ]
  }

  function features(row, lines, others) { // those first that matter most
    const n = columns.length
    return Array.from(about.columnOrder.slice(row * n, (row + 1) * n), j => {
      const cells = lines.map(each => {
        const made = cell(value(j, each.row), each.differs.has(j) ? ["differs"] : [])
        if (each.differs.has(j)) made.append(make("span", {class: "unseen"}, words.differs))
        return made
      })
      return line(own(columns[j]), [cell(value(j, row)), ...cells, ...others.map(() => cell(""))])
    })
  }

  function table(caption, row, lines, others, body) {
    const button = each => make("button", {type: "button", "data-row": each.row, title: data.name[each.row]}, own(data.name[each.row]))
    const head = ["", own(data.name[row]), ...lines.map(button), ...others.map(() => "others")]
    return make("div", {class: "scroll", tabindex: 0, role: "region", "aria-label": caption},
      make("table", {class: "beside"},
        make("caption", {}, caption),
        make("thead", {}, make("tr", {}, ...head.map(text => make("th", {scope: "col"}, text)))),
        make("tbody", {}, ...body)))
  }

  function tables(row, lines) { // further columns are shown on demand
    const others = othersOf(row)
    const all = features(row, lines, others)
    const few = all.length <= limits.columns + limits.more ? all.length : limits.columns
    const [first, rest] = [all.slice(0, few), all.slice(few)]
    const body = [line("weight", [cell(""), ...weights(lines, others)]), ...targets(row, lines, others), ...first]
    const further = fill(words.further, {n: rest.length})
    return [
      table(words.beside, row, lines, others, body),
      ...(rest.length === 0 ? []
        : [make("details", {}, make("summary", {}, further), table(further, row, lines, others, rest))]),
    ]
  }

  // -- the picture, as the report draws it --

  function picture(row, lines) {
    const {width, left, right, top, margin} = shape
    const [prediction, truth] = [data.prediction[row], data.target[row]]
    const known = Number.isNaN(truth) ? [] : [truth]
    const given = [...lines.map(each => each.target), ...known]
    const values = [...given, ...lines.map(each => each.adjusted), data.low[row], data.high[row], prediction].filter(Number.isFinite)
    const [low, high] = [Math.min(...values), Math.max(...values)]
    const beyond = margin * ((high - low) || 1)
    const x = value => (left + (value - low + beyond) / (high - low + 2 * beyond) * (width - left - right)).toFixed(1)
    const bottom = top + shape.line * lines.length
    const upright = (value, name) => makeShape("line", {x1: x(value), x2: x(value), y1: top, y2: bottom, class: name})
    const parts = [
      makeShape("rect", {x: x(data.low[row]), y: top, width: x(data.high[row]) - x(data.low[row]), height: bottom - top, class: "interval"}),
      upright(prediction, "prediction"),
      ...known.map(value => upright(value, "truth")),
    ]
    const heaviest = Math.max(...lines.map(each => each.weight))
    const moved = lines.some(each => each.adjusted !== each.target)
    lines.forEach(({row: other, weight, target, adjusted}, i) => {
      const y = top + shape.line * (i + 0.5)
      const [name, cut] = [data.name[other], data.name[other].length > shape.name]
      const size = {cy: y, r: Math.max(shape.largest * Math.sqrt(weight / heaviest), shape.smallest).toFixed(1)}
      parts.push(makeShape("text", {x: left - 12, y: y + 5, class: "name"}, cut ? `${name.slice(0, shape.name - 1)}\u2026` : name))
      if (moved) {
        parts.push(makeShape("line", {y1: y, y2: y, x1: x(target), x2: x(adjusted), class: "way"}))
        parts.push(makeShape("circle", {cx: x(adjusted), class: "ring", ...size}))
      }
      parts.push(makeShape("circle", {cx: x(target), class: "dot", ...size}))
    })
    for (const [value, anchor] of [[low, "start"], [high, "end"]]) {
      const text = given.includes(value) ? amount(value) : computed(value, row)
      parts.push(makeShape("text", {x: x(value), y: bottom + 18, "text-anchor": anchor}, text))
    }
    const legend = fill(words.dots, about) + (moved ? words.rings : "") + words.line + (known.length > 0 ? words.dashed : "")
    const view = `0 0 ${width} ${bottom + shape.bottom}`
    return make("figure", {}, makeShape("svg", {viewBox: view, role: "img", "aria-label": legend}, ...parts),
      make("figcaption", {}, own(legend)))
  }

  function ownTargets(row, lines) { // how much of a number are targets, and how much adjustment
    const mean = sum([...lines, ...othersOf(row)].map(each => each.weight * each.target))
    const added = data.prediction[row] - mean
    const text = computed(Math.abs(added), row)
    if (Number.isNaN(added) || !/[1-9]/.test(text)) return []
    return [make("p", {}, fill(added < 0 ? words.takes : words.adds, {mean: computed(mean, row), amount: text}))]
  }

  function report(row, lines) {
    const kind = row < about.nStored ? "Stored row, predicted without itself" : "Query"
    const alone = Number.isNaN(data.prediction[row])
    const certainty = alone ? "No stored row is earlier than this one." : labels === null
      ? `${about.confidence} interval: ${computed(data.low[row], row)} to ${computed(data.high[row], row)}`
      : data.chances[row]
    const head = [
      make("h2", {}, own(data.name[row])),
      make("p", {class: "soft"}, kind),
      make("p", {class: "value"}, own(computed(data.prediction[row], row))),
      make("p", {}, certainty),
      ...(Number.isNaN(data.target[row]) ? [] : [make("p", {}, "True value: ", own(amount(data.target[row])))]),
    ]
    if (alone) return head
    if (lines.length === 0) return [...head, make("p", {}, "The rows behind this prediction are not on the map.")]
    const carried = {n: lines.length, share: share(sum(lines.map(each => each.weight)))}
    const marked = columns.length > 0 && behind.data.differs0 ? words.marked : ""
    return [
      ...head,
      make("p", {}, fill(lines.length === 1 ? words.one_row : words.some_rows, carried) + marked),
      ...(labels === null ? [...ownTargets(row, lines), picture(row, lines)] : []),
      ...tables(row, lines),
    ]
  }

  function draw(row, lines) {
    const all = (column, of) => lines.map(each => data[column][of(each)])
    links.data = {
      x0: all("x", () => row), y0: all("y", () => row),
      x1: all("x", each => each.row), y1: all("y", each => each.row),
      width: lines.map(each => 1 + 6 * each.weight),
    }
  }

  let shown = null
  function show(row) {
    if (row === shown) return
    shown = row
    const lines = linesOf(row)
    draw(row, lines)
    find("report").replaceChildren(...report(row, lines))
    find("report").scrollTop = 0
    const place = places.get(row)
    find("place").value = place === undefined ? "" : `${place + 1} of ${order.length}`
    if (place !== undefined) find("slider").value = place + 1
    rows.selected.indices = [row]
  }

  // -- colours --

  function paint(mode) {
    for (const glyph of [stored, queries].flatMap(dots => [dots.glyph, dots.selection_glyph, dots.nonselection_glyph])) {
      glyph.fill_color = {field: mode, transform: colors[mode]}
    }
    find("legend").replaceChildren(...legend(mode))
  }

  function legend(mode) {
    const {low, high, palette} = colors[mode]
    if (labels !== null && mode !== "error") {
      const more = labels.length - MOST_CLASSES
      return [
        ...labels.slice(0, MOST_CLASSES).map((label, i) =>
          make("span", {}, make("i", {style: `background: ${palette[i]}`}), own(label))),
        ...(more > 0 ? [`and ${more} more`] : []),
      ]
    }
    const place = mode === "target" ? about.decimals : about.place
    const write = value => mode === "error" && labels !== null ? share(value) : amount(value, place)
    const known = Array.from(data[mode]).filter(value => !Number.isNaN(value))
    const [under, over] = [known.some(value => value < low), known.some(value => value > high)]
    const stops = palette.filter((_, i) => i % 25 === 0)
    return [`${under ? "\u2264 " : ""}${write(low)}`, make("i", {class: "scale", style: `background: linear-gradient(90deg, ${stops})`}),
      `${over ? "\u2265 " : ""}${write(high)}`]
  }

  // -- beside the pointer --

  function tip(row) {
    const some = columns.slice(0, MOST_HOVERED)
    const lines = some.map((column, j) => make("div", {}, own(column), ": ", value(j, row)))
    return [
      make("strong", {}, own(data.name[row])),
      make("div", {}, own(about.target), `: ${amount(data.target[row])}`),
      make("div", {}, `prediction: ${computed(data.prediction[row], row)}`),
      ...lines,
    ]
  }

  const hovered = new Map() // the row of stored rows, and of queries: each is announced by itself
  addEventListener("nona-hover", ({detail: [, {index, geometry, renderer}]}) => {
    hovered.set(renderer, index.indices[0])
    const row = hovered.get(queries) ?? hovered.get(stored)
    find("tip").hidden = row === undefined
    if (row === undefined) return
    find("tip").replaceChildren(...tip(row))
    const left = geometry.sx > find("map").clientWidth / 2
    const side = left ? {right: `${find("map").clientWidth - geometry.sx + 12}px`, left: "auto"}
      : {left: `${geometry.sx + 12}px`, right: "auto"}
    Object.assign(find("tip").style, side, {top: `${geometry.sy + 12}px`})
  })

  // -- what a reader does --

  addEventListener("nona-tap", () => {
    const {indices} = rows.selected
    const query = indices.find(row => row >= about.nStored) // queries are drawn above stored rows
    if (indices.length > 0) show(query ?? indices[0])
  })
  find("color").addEventListener("change", event => paint(event.target.value))
  find("stored")?.addEventListener("change", event => { stored.visible = event.target.checked })
  find("slider").addEventListener("input", event => show(order[event.target.value - 1]))
  find("name").addEventListener("input", event => event.target.setCustomValidity(""))
  find("name").addEventListener("keydown", event => {
    if (event.key !== "Enter") return
    event.preventDefault()
    const name = event.target.value.trim()
    const after = data.name.indexOf(name, shown + 1) // several rows may have a name
    const row = after < 0 ? data.name.indexOf(name) : after
    event.target.setCustomValidity(row < 0 ? "No row has this name" : "")
    if (row < 0) event.target.reportValidity()
    else show(row)
  })
  addEventListener("submit", event => event.preventDefault())
  addEventListener("click", event => {
    const {row} = event.target.closest("button[data-row]")?.dataset ?? {}
    if (row === undefined) return
    show(Number(row))
    find("report").scrollIntoView({block: "nearest"})
  })

  paint("target")
  show(order[0])
}
