/** Whether a server that ended is started again: not if it keeps ending. Knows only moments. */

export const MOST = 4;
export const WITHIN_MS = 180_000;

export class Restarts {
  private readonly ends: number[] = [];

  /** Takes note of an end and tells whether to start again. */
  mayStart(now: number): boolean {
    this.ends.push(now);
    while (this.ends.length > 0 && now - this.ends[0]! > WITHIN_MS) {
      this.ends.shift();
    }
    return this.ends.length <= MOST;
  }

  /** Forgets what was; the user asked for a new start. */
  clear(): void {
    this.ends.length = 0;
  }
}
