// Distinguishes cursor moves from cursor changes that an edit causes.

/** The cursor's place in one version of a document. */
export interface Place {
  uri: string;
  version: number;
  line: number;
  character: number;
}

/** Remembers the last place that was announced or edited. */
export class MoveTracker {
  private last: Place | undefined;

  /** Whether the cursor reached this place without an edit; the caller must pass every place in order. */
  movedTo(place: Place): boolean {
    const before = this.last;
    this.last = place;
    if (before?.uri !== place.uri) {
      return true;
    }
    const elsewhere = before.line !== place.line || before.character !== place.character;
    return elsewhere && before.version === place.version;
  }
}
