// Play audio while it arrives in pieces of samples. The pieces are played without gaps.

const LEAD_S = 0.08; // time between a start of playing and the first sample, so that the first piece is not cut

/**
 * Make a sound from the pieces of a stream. It has the methods and values of `sound` in audio.js, and
 *
 * take(message, samples)   adds a piece: { at (first frame), rate_hz, channels }, and 16 bit samples of all channels
 * finish()                 marks the end of the stream
 * on                       handlers { change(), ended() }
 * solo                     object from `soloist`
 */
export function liveSound({ on, solo }) {
  let context = null; // AudioContext with the sample rate of the stream, so that pieces meet without gaps
  let rate = 0;
  let have = 0; // frames that have arrived
  let origin = 0; // time of the first frame, on the clock of the context
  let from = -1; // position of the last seek in seconds. With output latency, the position would start below it
  let frame = 0;
  let complete = false;
  let started = false;
  const pieces = [];

  const exact = (seconds) => Math.round(seconds * rate) / rate;
  const begin = (piece) => {
    const offset = Math.max(0, context.currentTime - origin - piece.at);
    if (offset >= piece.buffer.duration) return;
    piece.node = new AudioBufferSourceNode(context, { buffer: piece.buffer });
    piece.node.connect(context.destination);
    piece.node.start(Math.max(context.currentTime, origin + piece.at), offset);
  };
  const goTo = (seconds) => {
    started = true;
    from = seconds;
    pieces.forEach((piece) => {
      piece.node?.disconnect();
      piece.node = null;
    });
    origin = exact(context.currentTime - seconds);
    pieces.forEach(begin);
  };
  const length = () => (rate ? have / rate : 0);
  const passed = () => (context && started ? context.currentTime - origin - (context.outputLatency || 0) : 0);
  const isPlaying = () => context?.state === "running" && started && !(complete && passed() >= length());
  const tick = () => {
    cancelAnimationFrame(frame);
    on.change();
    if (isPlaying()) frame = requestAnimationFrame(tick);
    else if (complete && started && passed() >= length()) on.ended();
  };
  const open = () => {
    if (context || !rate) return Boolean(context);
    context = new AudioContext({ sampleRate: rate });
    context.onstatechange = tick;
    return true;
  };

  const live = {
    take({ at, rate_hz: rateHz, channels }, samples) {
      const frames = samples.byteLength / 2 / channels;
      const known = have - at;
      if (known < 0 || known >= frames) return;
      rate = rateHz;
      const buffer = new AudioBuffer({ length: frames - known, numberOfChannels: channels, sampleRate: rate });
      for (let channel = 0; channel < channels; channel++) {
        const values = buffer.getChannelData(channel);
        for (let k = 0; k < values.length; k++) values[k] = samples.getInt16(2 * ((k + known) * channels + channel), true) / 32767;
      }
      const piece = { at: have / rate, buffer };
      have += frames - known;
      pieces.push(piece);
      if (!started) return;
      // If a piece arrives late, the time of all later pieces moves. So the silence does not skip any audio.
      if (origin + piece.at < context.currentTime) origin = exact(context.currentTime + LEAD_S - piece.at);
      begin(piece);
      tick();
    },
    finish() {
      complete = true;
      tick();
    },
    async play() {
      if (!open()) return;
      solo.begins(live);
      if (!started) goTo(-LEAD_S);
      // Some browsers delay this until the user has clicked on the page.
      await context.resume();
      tick();
    },
    async pause() {
      await context?.suspend();
      tick();
    },
    toggle: () => (isPlaying() ? live.pause() : live.play()),
    seek(seconds) {
      if (!open()) return;
      goTo(Math.max(0, Math.min(seconds, length())));
      tick();
    },
    get playing() { return isPlaying(); },
    get seconds() { return Math.max(0, from, Math.min(passed(), length())); },
    get started() { return from >= 0 || passed() > 0; },
    get loading() { return isPlaying() && !complete && passed() >= length(); },
    problem: null,
    dispose() {
      cancelAnimationFrame(frame);
      if (!context) return;
      context.onstatechange = null;
      context.close();
      context = null;
    },
  };
  return live;
}
