// Tells cursor moves from the cursor's following an edit.

/** Where the cursor stands, in which state of a document. */
export interface Place {
  uri: string;
  version: number;
  line: number;
  character: number;
}

/** Remembers the last place told or typed at. */
export class MoveTracker {
  private last: Place | undefined;

  /** Whether the cursor came here without an edit; every place that it comes to must be passed. */
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
