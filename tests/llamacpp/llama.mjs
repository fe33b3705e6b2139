// A thin wrapper around llama.cpp v0.5.0 through the native addon of node-llama-cpp
// 3.22.1: the caller sets the batches, and all logits are returned. (The classes of
// the package choose batch sizes themselves; the pinned version makes it safe to use
// the addon directly.)
import fs from "node:fs";
import {getLlama} from "node-llama-cpp";

// On a processor with AMX llama.cpp v0.5.0 repacks the weights and then aborts on
// these models with "GGML_ASSERT(*cur_backend_id != -1)". Without its build for such
// processors it uses the next best one.
fs.rmSync(
    new URL("node_modules/@node-llama-cpp/linux-x64/bins/linux-x64/libggml-cpu-sapphirerapids.so", import.meta.url),
    {force: true}
);

/**
 * Load a model on the CPU.
 * @param {string} path GGUF file
 * @param {{vocabOnly?: boolean}} [options]
 * @returns {Promise<Model>}
 */
export async function loadModel(path, {vocabOnly = false} = {}) {
    // Collect the loader's messages for the error: llama.cpp throws only "failed".
    const messages = [];
    const llama = await getLlama({
        gpu: false, build: "never", progressLogs: false, logLevel: "warn",
        logger: (level, text) => messages.push(`${level}: ${text.trimEnd()}`)
    });
    const addon = llama._bindings;
    const model = new addon.AddonModel(path, {addonExports: addon, gpuLayers: 0, vocabOnly, useMmap: true});
    let loaded = false;
    try {
        loaded = await model.init();
    } catch (err) {
        messages.push(String(err));
    }
    if (!loaded)
        throw new Error(`llama.cpp cannot load ${path}: ${messages.join("; ")}`);
    return new Model(addon, model, path);
}

class Model {
    constructor(addon, model, path) {
        this.addon = addon;
        this.model = model;
        this.path = path;
        this.sampler = new addon.AddonSampler(model);
        this.sampler.applyConfig({temperature: 0}); // greedy, logits untouched
    }

    /** Ids of a text; marker tokens in it are markers. @returns {number[]} */
    tokenize(text) {
        return Array.from(this.model.tokenize(text, true));
    }

    /**
     * A context for one sequence; with `exact` its KV cache is float32 (type 0 of GGML)
     * and attention is not fused.
     * @param {{context: number, batch: number, threads?: number, exact?: boolean}} options
     * @returns {Promise<Context>}
     */
    async context({context, batch, threads = 1, exact = false}) {
        const ctx = new this.addon.AddonContext(this.model, {
            contextSize: context, batchSize: batch, sequences: 1, threads,
            ...(exact ? {flashAttention: false, kvCacheKeyType: 0, kvCacheValueType: 0} : {flashAttention: "auto"})
        });
        if (!await ctx.init())
            throw new Error(`llama.cpp cannot create a context of ${context} tokens for ${this.path}`);
        ctx.setThreads(threads);
        return new Context(this, ctx, batch);
    }

    async dispose() {
        await this.model.dispose();
    }
}

class Context {
    constructor(model, ctx, batch) {
        this.owner = model;
        this.ctx = ctx;
        this.batch = batch;
        this.length = 0;
    }

    /** Forget the sequence. */
    clear() {
        this.ctx.disposeSequence(0);
        this.length = 0;
    }

    /** Forget all but the first tokens, if the model's cache can. @returns {boolean} */
    rewind(length) {
        const done = this.ctx.removeTokenCellsFromSequence(0, length, this.length);
        if (done)
            this.length = length;
        return done;
    }

    /**
     * Run tokens as one batch after those run so far.
     * @param {number[]} ids at most the context's batch
     * @param {number[]} want indexes into ids, ascending, whose logits are wanted
     * @returns {Promise<number[]>} handles for logits() and greedy()
     */
    async decode(ids, want) {
        this.ctx.initBatch(ids.length);
        const handles = this.ctx.addToBatch(0, this.length, Uint32Array.from(ids), Uint32Array.from(want));
        await this.ctx.decodeBatch();
        this.length += ids.length;
        return Array.from(handles);
    }

    /** Run a prompt in batches; the handle of its last token. */
    async prefill(ids) {
        let last = [];
        for (let at = 0; at < ids.length; at += this.batch) {
            const part = ids.slice(at, at + this.batch);
            last = await this.decode(part, at + part.length === ids.length ? [part.length - 1] : []);
        }
        return last[0];
    }

    /** Write the sequence's state to a file. @param {number[]} ids the tokens run so far */
    async save(path, ids) {
        await this.ctx.saveSequenceStateToFile(path, 0, Uint32Array.from(ids));
    }

    /** Take the sequence's state from a file. @returns {Promise<number>} its length */
    async restore(path, limit) {
        this.clear();
        this.length = (await this.ctx.loadSequenceStateFromFile(path, 0, limit)).length;
        return this.length;
    }

    /** All logits of a token. @returns {Promise<Float32Array>} */
    async logits(handle) {
        const [, , , pairs] = await this.ctx.sampleToken(handle, this.owner.sampler, false, false, true, false);
        const row = new Float32Array(pairs.length / 2);
        for (let i = 0; i < pairs.length; i += 2)
            row[pairs[i]] = pairs[i + 1];
        return row;
    }

    /** The most likely next token. @returns {Promise<number>} */
    greedy(handle) {
        return this.ctx.sampleToken(handle, this.owner.sampler);
    }

    async dispose() {
        await this.ctx.dispose();
    }
}

/**
 * Write the logits of every token to a file: little-endian float32, one row of the
 * size of the vocabulary per token. The last `single` tokens are evaluated one by
 * one, the others in batches.
 */
export async function dumpLogits(context, ids, single, path) {
    const file = fs.openSync(path, "w");
    try {
        for (let at = 0; at < ids.length;) {
            const together = ids.length - single - at;
            const part = ids.slice(at, at + (together > 0 ? Math.min(together, context.batch) : 1));
            for (const handle of await context.decode(part, part.map((_, i) => i)))
                fs.writeSync(file, await context.logits(handle));
            at += part.length;
        }
    } finally {
        fs.closeSync(file);
    }
}
